"""Output for continuous integration: a job summary, annotations, and a badge."""

from collections.abc import Iterator
from typing import Any

from conformance.markdown import code, escaped, plain

from .findings import count, first, new_runs, shown, tallies
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
            yield f"  {code(result.command)}"


def _known(report: Report) -> Iterator[str]:
    """Yield the known findings, the most important first, then the runs of each."""
    listed = shown(report)
    if not listed:
        return
    known = sum(not result.new and result.expectation.known is not None for result in report.results)
    yield f"## {count(len(listed), 'known finding')}, {count(known, 'run')} that the ledger expects to deviate"
    yield ""
    for one in listed:
        title, runs = escaped(one.finding.title), count(len(one.results), "run")
        yield f"- {escaped(one.what)}: {title} ({code(one.finding.id)}; {runs}, {escaped(one.reach)})"
    for one in listed:
        yield ""
        yield f"### {escaped(one.finding.id)}"
        yield ""
        for result in one.results:
            yield f"- {code(result.row.id)} ({escaped(report.labels[result.column.environment])})"


def annotations(report: Report) -> Iterator[str]:
    """Yield workflow commands that annotate a run of GitHub Actions with the new deviations."""
    for result in report.new[:ANNOTATIONS]:
        label = report.labels[result.column.environment]
        message = f"{result.message} ({label}). Reproduce: {result.command}"
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
    works = sum(counts.works for counts in report.tallies.values())
    executed = sum(counts.executed for counts in report.tallies.values())
    message = f"{works} of {executed} claims work in default use"
    if not executed:
        message, color = "nothing executed", "lightgrey"
    elif report.new:
        message, color = f"{message}, {count(len(report.new), 'run')} new", "red"
    else:
        color = "brightgreen" if works == executed else "green"
    return {"schemaVersion": 1, "label": "conformance", "message": message, "color": color}
