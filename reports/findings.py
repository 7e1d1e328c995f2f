"""Known deviations grouped by cause, and new ones, as data and as markdown."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.markdown import code, escaped, fenced
from conformance.results.ledger import Entry
from conformance.results.rows import repro_command
from conformance.results.verdicts import IN_ORDER

from .load import Column, Report, Result

AREAS = {
    "matched": "Promised, but it cannot occur or changes nothing",
    "observed": "Prepare: observers and fusion",
    "reference": "Conversion to the reference model",
    "constraints": "Constraints of dtypes",
    "lowered": "Lowering: it raises, or stays in float",
    "numerics": "Kernels: other integers",
    "accuracy": "Kernels: inaccurate",
    "stable": "Results that depend on what must not matter",
    "crashes": "Kernels that end the process",
}
"""Titles of areas, by the first check that fails."""
SHOWN_NEW = 50
"""Maximum number of new deviations in the document."""


@dataclass(frozen=True)
class EntryRuns:
    """An entry of the ledger and the runs that show it."""

    entry: Entry
    results: tuple[Result, ...]

    @property
    def columns(self) -> dict[Column, int]:
        """Number of runs by column."""
        return dict(Counter(result.column for result in self.results))

    @property
    def example(self) -> Result | None:
        """The run with the shortest detail, one with a reproduction if there is any."""
        return min(self.results, key=_brevity, default=None)


def _brevity(result: Result) -> tuple[object, ...]:
    row, details = result.row, result.details
    return details is None or not details.reproduction, len(row.failed), len(row.detail), row.id


@dataclass(frozen=True)
class Cause:
    """Entries with the same reason."""

    reason: str
    entries: tuple[EntryRuns, ...]

    @property
    def runs(self) -> int:
        return sum(len(entry.results) for entry in self.entries)


@dataclass(frozen=True)
class Area:
    """Causes with the same first failing check."""

    check: str
    title: str
    causes: tuple[Cause, ...]

    @property
    def runs(self) -> int:
        return sum(cause.runs for cause in self.causes)


def areas(report: Report) -> list[Area]:
    """Every entry of the ledger by area and cause, sorted by number of runs, the greatest first."""
    shown: dict[str, list[Result]] = {entry.id: [] for entry in report.entries}
    for result in report.results:
        for entry in result.expectation.entries:
            if entry.check & result.row.failed:
                shown[entry.id].append(result)
    by_area: dict[str, dict[str, list[EntryRuns]]] = {check: {} for check in AREAS}
    for entry in report.entries:
        area = next(check for check in AREAS if check in entry.check)
        by_area[area].setdefault(entry.reason, []).append(EntryRuns(entry, tuple(shown[entry.id])))
    return [_area(check, by_reason) for check, by_reason in by_area.items() if by_reason]


def _area(check: str, by_reason: Mapping[str, Sequence[EntryRuns]]) -> Area:
    causes = [Cause(reason, tuple(entries)) for reason, entries in by_reason.items()]
    return Area(check, AREAS[check], tuple(sorted(causes, key=lambda cause: -cause.runs)))


def link(upstream: str) -> str:
    """URL of an entry's upstream issue, or an empty text if it is unreported."""
    project, _, number = upstream.partition("#")
    return f"https://github.com/{project}/issues/{number}" if number else ""


def count(number: int, noun: str) -> str:
    """A number with a noun, in the plural unless the number is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def document(report: Report) -> Iterator[str]:
    """Yield the document in markdown: claims by environment, new deviations, then every cause with an example and its
    reproduction."""
    yield "# Findings"
    yield ""
    yield from tallies(report)
    yield ""
    yield from _new(report)
    all_areas = areas(report)
    for area in all_areas:
        if not area.runs:
            continue
        yield f"## {area.title}"
        yield ""
        for cause in area.causes:
            if cause.runs:
                yield from _cause(report, cause)
    unseen = [
        shown.entry.id for area in all_areas for cause in area.causes for shown in cause.entries if not shown.results
    ]
    if unseen:
        yield "## In the ledger, not in these rows"
        yield ""
        yield ", ".join(map(code, unseen))
        yield ""


def tallies(report: Report) -> Iterator[str]:
    """Yield the table of claims by backend, engine and environment."""
    yield "| config | engine | environment | torch | claims | kept | deviating | crashing | unavailable | new runs |"
    yield "| --- | --- | --- | --- | --: | --: | --: | --: | --: | --: |"
    for column, counts in report.tallies.items():
        by_verdict = (counts.verdicts[verdict] for verdict in IN_ORDER)
        texts = column.backend, column.engine, report.labels[column.environment], column.environment.torch
        yield f"| {' | '.join([*map(escaped, texts), *map(str, (counts.claims, *by_verdict, counts.new))])} |"


def _new(report: Report) -> Iterator[str]:
    if not report.new:
        return
    yield f"## New: {count(len(report.new), 'run')} that the ledger does not expect"
    yield ""
    yield from new_runs(report, report.new[:SHOWN_NEW])
    if len(report.new) > SHOWN_NEW:
        yield f"- … and {len(report.new) - SHOWN_NEW} more"
    yield ""


def new_runs(report: Report, results: Iterable[Result]) -> Iterator[str]:
    """Yield a list of runs that the ledger does not expect, each with its environment and message."""
    for result in results:
        label = report.labels[result.column.environment]
        yield f"- {code(result.row.id)} ({escaped(label)}): {escaped(result.message)}"


def _cause(report: Report, cause: Cause) -> Iterator[str]:
    shown = [entry for entry in cause.entries if entry.results]
    yield f"### {escaped(cause.reason)}"
    yield ""
    for entry_runs in shown:
        entry = entry_runs.entry
        upstream = f"[{escaped(entry.upstream)}]({link(entry.upstream)})" if link(entry.upstream) else "unreported"
        when = "".join(f", where {name} is {code(value)}" for name, value in entry.when.items())
        checks = ", ".join(sorted(entry.check))
        yield f"- {code(entry.id)}: {checks}{when}; upstream: {upstream}. {_where(report, entry_runs)}."
    yield ""
    example = min((entry_runs.example for entry_runs in shown if entry_runs.example), key=_brevity)
    yield f"> {escaped(example.row.detail)}"
    yield ""
    if example.details is not None and example.details.reproduction:
        yield f"<details><summary>Reproduction of {escaped(example.row.id)}</summary>"
        yield ""
        yield from fenced(example.details.reproduction.rstrip(), "python")
        yield ""
        yield "</details>"
    else:
        yield from fenced(repro_command(example.row.id), "sh")
    yield ""


def _where(report: Report, entry_runs: EntryRuns) -> str:
    parts = (
        f"{escaped(column.name)} on {escaped(report.labels[column.environment])}: {number}"
        for column, number in entry_runs.columns.items()
    )
    return f"{count(len(entry_runs.results), 'run')} ({'; '.join(parts)})"


def first(lines: Sequence[str], max_bytes: int) -> tuple[list[str], int]:
    """The first lines that fit into `max_bytes` bytes of UTF-8, and the number of lines that do not."""
    taken = size = 0
    for line in lines:
        size += len(line.encode()) + 1
        if size > max_bytes:
            break
        taken += 1
    return list(lines[:taken]), len(lines) - taken
