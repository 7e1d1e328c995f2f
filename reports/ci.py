"""What continuous integration shows of rows files: a job summary, annotations, and a badge."""

from collections.abc import Iterator
from typing import Any

from conformance.markdown import code, escaped, plain
from conformance.results.rows import repro_command

from .findings import count, first, new_runs, standings
from .gathered import Gathered, Result

SUMMARY_BYTES = 1024 * 1024
"""What GitHub takes of a step's summary; of a longer one it shows nothing."""
ANNOTATIONS = 10
"""What GitHub shows of the errors of one step."""


def summary(gathered: Gathered, most: int = SUMMARY_BYTES) -> str:
    """A job summary in markdown of no more than `most` bytes: totals, what is new, then what the ledger knows."""
    new = gathered.new
    lines = ["# Conformance", "", *standings(gathered), ""]
    lines += (
        [f"## {count(len(new), 'run')} not as the ledger says", ""] if new else ["All runs are as the ledger says.", ""]
    )
    lines += [*_reproducible(gathered, new), ""]
    lines += _known(gathered)
    note = "\n… and {} lines more: the rows files have everything.\n"
    if sum(len(line.encode()) + 1 for line in lines) <= most:
        return "\n".join(lines) + "\n"
    kept, left = first(lines, most - len(note.encode()) - len(str(len(lines))))
    return "\n".join(kept) + "\n" + note.format(left)


def _reproducible(gathered: Gathered, new: list[Result]) -> Iterator[str]:
    for line, result in zip(new_runs(gathered, new), new, strict=True):
        yield line
        if result.row.failed:
            yield f"  {code(repro_command(result.row.id))}"


def _known(gathered: Gathered) -> Iterator[str]:
    """What deviates as the ledger says, by entry."""
    by_entry: dict[str, list[Result]] = {}
    for result in gathered.results:
        if not result.new and result.held.known:
            by_entry.setdefault(result.held.known, []).append(result)
    if not by_entry:
        return
    yield f"## {count(sum(map(len, by_entry.values())), 'run')} as the ledger says"
    yield ""
    for name, results in sorted(by_entry.items(), key=lambda item: -len(item[1])):
        yield f"- {code(name)}, {count(len(results), 'run')}: {escaped(results[0].held.entries[0].reason)}"
    for name, results in sorted(by_entry.items()):
        yield ""
        yield f"### {escaped(name)}"
        yield ""
        for result in results:
            yield f"- {code(result.row.id)} ({escaped(gathered.labels[result.column.environment])})"


def annotations(gathered: Gathered) -> Iterator[str]:
    """Workflow commands that show what is new beside a run of GitHub Actions."""
    for result in gathered.new[:ANNOTATIONS]:
        where = gathered.labels[result.column.environment]
        said = f"{result.held.message or result.row.detail} ({where}). Reproduce: {repro_command(result.row.id)}"
        yield f"::error title={_property(result.row.id)}::{_data(said)}"
    if len(gathered.new) > ANNOTATIONS:
        yield f"::notice::and {len(gathered.new) - ANNOTATIONS} more: the job summary has all"


def _data(value: str) -> str:
    """Text as the message of a workflow command, which ends with its line."""
    return plain(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def badge(gathered: Gathered) -> dict[str, Any]:
    """What shields.io's endpoint badge takes (https://shields.io/badges/endpoint-badge)."""
    verdicts = [one.verdicts for one in gathered.standings.values()]
    kept = sum(one["conforms"] for one in verdicts)
    executed = sum(sum(one.values()) - one["unavailable"] for one in verdicts)
    if not executed:
        message, color = "nothing executed", "lightgrey"
    elif gathered.new:
        message, color = f"{kept} of {executed} claims kept, {len(gathered.new)} runs new", "red"
    else:
        message, color = f"{kept} of {executed} claims kept", "brightgreen" if kept == executed else "green"
    return {"schemaVersion": 1, "label": "conformance", "message": message, "color": color}
