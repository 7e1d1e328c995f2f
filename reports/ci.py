"""Output for continuous integration: a job summary, annotations, and a badge."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from conformance.markdown import code, escaped, plain
from conformance.results.rows import repro_command
from conformance.results.verdicts import Verdict

from .findings import count, first, new_runs, tallies
from .load import Report, Result

SUMMARY_BYTES = 1024 * 1024
"""Maximum size of a step's summary on GitHub, which shows nothing of a longer one."""
ANNOTATIONS = 10
"""Number of errors that GitHub shows for one step."""


def summary(report: Report, max_bytes: int = SUMMARY_BYTES) -> str:
    """A job summary in markdown of at most `max_bytes` bytes: totals, new deviations, then known ones."""
    new = report.new
    lines = ["# Conformance", "", *tallies(report), ""]
    lines += (
        [f"## {count(len(new), 'run')} that the ledger does not expect", ""]
        if new
        else ["The ledger expects the outcome of every run.", ""]
    )
    lines += [*_reproducible(report, new), ""]
    lines += _known(report)
    note = "\n… and {} lines more: the rows files have everything.\n"
    if sum(len(line.encode()) + 1 for line in lines) <= max_bytes:
        return "\n".join(lines) + "\n"
    kept, left = first(lines, max_bytes - len(note.encode()) - len(str(len(lines))))
    return "\n".join(kept) + "\n" + note.format(left)


def _reproducible(report: Report, new: list[Result]) -> Iterator[str]:
    for line, result in zip(new_runs(report, new), new, strict=True):
        yield line
        if result.row.failed:
            yield f"  {code(repro_command(result.row.id))}"


def _known(report: Report) -> Iterator[str]:
    """Yield the known deviations by entry."""
    by_entry: dict[str, list[Result]] = {}
    for result in report.results:
        if not result.new and result.expectation.known:
            by_entry.setdefault(result.expectation.known, []).append(result)
    if not by_entry:
        return
    yield f"## {count(sum(map(len, by_entry.values())), 'run')} that the ledger expects to deviate"
    yield ""
    for name, results in sorted(by_entry.items(), key=lambda item: -len(item[1])):
        yield f"- {code(name)}, {count(len(results), 'run')}: {escaped(results[0].expectation.entries[0].reason)}"
    for name, results in sorted(by_entry.items()):
        yield ""
        yield f"### {escaped(name)}"
        yield ""
        for result in results:
            yield f"- {code(result.row.id)} ({escaped(report.labels[result.column.environment])})"


def annotations(report: Report) -> Iterator[str]:
    """Yield workflow commands that annotate a run of GitHub Actions with the new deviations."""
    for result in report.new[:ANNOTATIONS]:
        label = report.labels[result.column.environment]
        message = f"{result.message} ({label}). Reproduce: {repro_command(result.row.id)}"
        yield f"::error title={_property(result.row.id)}::{_data(message)}"
    if len(report.new) > ANNOTATIONS:
        yield f"::notice::and {len(report.new) - ANNOTATIONS} more: the job summary has all"


def _data(value: str) -> str:
    """Text escaped as the message of a workflow command, which is one line."""
    return plain(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def badge(report: Report) -> dict[str, Any]:
    """Data of a shields.io endpoint badge (https://shields.io/badges/endpoint-badge)."""
    verdicts: Counter[Verdict] = sum((Counter(tally.verdicts) for tally in report.tallies.values()), Counter())
    kept = verdicts[Verdict.CONFORMS]
    executed = sum(number for verdict, number in verdicts.items() if verdict.executed)
    if not executed:
        message, color = "nothing executed", "lightgrey"
    elif report.new:
        message, color = f"{kept} of {executed} claims kept, {len(report.new)} runs new", "red"
    else:
        message, color = f"{kept} of {executed} claims kept", "brightgreen" if kept == executed else "green"
    return {"schemaVersion": 1, "label": "conformance", "message": message, "color": color}
