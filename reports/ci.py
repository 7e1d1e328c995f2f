"""Output for continuous integration: a job summary, annotations, and a badge."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from conformance.markdown import plain

from . import documents
from .documents import count
from .findings import shown, tallies
from .load import Report
from .news import groups

SUMMARY_BYTES = 1024 * 1024
"""Maximum size of a step's summary on GitHub, which shows nothing of a longer one."""
ANNOTATIONS = 10
"""Number of errors that GitHub shows for one step."""


def summary(report: Report, max_bytes: int = SUMMARY_BYTES) -> str:
    """A job summary in markdown of at most `max_bytes` bytes: totals, new deviations, then known ones."""
    known = sum(not result.new and result.expectation.known is not None for result in report.results)
    lines = documents.lines(
        "summary.md", report=report, tallies=tallies(report), listed=shown(report), known=known, news=groups(report)
    )
    note = "\n… and {} lines more: the rows files have everything.\n"
    if sum(len(line.encode()) + 1 for line in lines) <= max_bytes:
        return "\n".join(lines) + "\n"
    kept, left = first(lines, max_bytes - len(note.encode()) - len(str(len(lines))))
    return "\n".join(kept) + "\n" + note.format(left)


def first(lines: Sequence[str], max_bytes: int) -> tuple[Sequence[str], int]:
    """The first lines that fit into `max_bytes` bytes of UTF-8, and the number of lines that do not."""
    sizes = accumulate(len(line.encode()) + 1 for line in lines)
    taken = sum(size <= max_bytes for size in sizes)
    return lines[:taken], len(lines) - taken


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
