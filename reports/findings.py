"""What is known to deviate and what is new, grouped by cause, as data and as markdown."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from conformance.markdown import code, escaped, fenced
from conformance.results.ledger import Entry
from conformance.results.rows import repro_command

from .gathered import Column, Gathered, Result

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
"""What goes wrong, by the first check that fails."""
SHOWN_NEW = 50
"""New deviations that the page has in full."""


@dataclass(frozen=True)
class Finding:
    """An entry of the ledger with the runs that show it."""

    entry: Entry
    results: tuple[Result, ...]

    @property
    def columns(self) -> dict[Column, int]:
        """How many runs of each column show it."""
        return dict(Counter(result.column for result in self.results))

    @property
    def example(self) -> Result | None:
        """The run that says it in the fewest words, one with a reproduction before others."""
        return min(self.results, key=_plainness, default=None)


def _plainness(result: Result) -> tuple[object, ...]:
    row, details = result.row, result.details
    return details is None or not details.reproduction, len(row.failed), len(row.detail), row.id


@dataclass(frozen=True)
class Cause:
    """Entries that have the same reason."""

    reason: str
    findings: tuple[Finding, ...]

    @property
    def runs(self) -> int:
        return sum(len(finding.results) for finding in self.findings)


@dataclass(frozen=True)
class Area:
    """The causes of one kind."""

    check: str
    title: str
    causes: tuple[Cause, ...]

    @property
    def runs(self) -> int:
        return sum(cause.runs for cause in self.causes)


def areas(gathered: Gathered) -> list[Area]:
    """Every entry of the ledger by area and cause, those with most runs first; entries that no run shows come last."""
    shown: dict[str, list[Result]] = {entry.id: [] for entry in gathered.entries}
    for result in gathered.results:
        for entry in result.held.entries:
            if entry.check & result.row.failed:
                shown[entry.id].append(result)
    by_area: dict[str, dict[str, list[Finding]]] = {check: {} for check in AREAS}
    for entry in gathered.entries:
        area = next(check for check in AREAS if check in entry.check)
        by_area[area].setdefault(entry.reason, []).append(Finding(entry, tuple(shown[entry.id])))
    found = (
        Area(check, AREAS[check], tuple(sorted((Cause(r, tuple(f)) for r, f in causes.items()), key=lambda c: -c.runs)))
        for check, causes in by_area.items()
        if causes
    )
    return [*found]


def link(upstream: str) -> str:
    """The address of what an entry names as upstream; empty if it is not reported."""
    project, _, number = upstream.partition("#")
    return f"https://github.com/{project}/issues/{number}" if number else ""


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def document(gathered: Gathered) -> Iterator[str]:
    """The findings as markdown: where it ran, what is new, then every cause with an example and its reproduction."""
    yield "# Findings"
    yield ""
    yield from standings(gathered)
    yield ""
    yield from _new(gathered)
    every = areas(gathered)
    for area in every:
        if not area.runs:
            continue
        yield f"## {area.title}"
        yield ""
        for cause in area.causes:
            if cause.runs:
                yield from _cause(gathered, cause)
    unseen = [f.entry.id for area in every for cause in area.causes for f in cause.findings if not f.results]
    if unseen:
        yield "## In the ledger, not in these rows"
        yield ""
        yield ", ".join(map(code, unseen))
        yield ""


def standings(gathered: Gathered) -> Iterator[str]:
    """The table of claims by backend, engine and environment."""
    yield "| config | engine | environment | torch | claims | kept | deviating | crashing | unavailable | new runs |"
    yield "| --- | --- | --- | --- | --: | --: | --: | --: | --: | --: |"
    for column, one in gathered.standings.items():
        counted = (one.verdicts[verdict] for verdict in ("conforms", "deviates", "crashes", "unavailable"))
        texts = column.backend, column.engine, gathered.labels[column.environment], column.environment.torch
        yield f"| {' | '.join([*map(escaped, texts), *map(str, (one.claims, *counted, one.new))])} |"


def _new(gathered: Gathered) -> Iterator[str]:
    if not gathered.new:
        return
    yield f"## New: {count(len(gathered.new), 'run')} not as the ledger says"
    yield ""
    yield from new_runs(gathered, gathered.new[:SHOWN_NEW])
    if len(gathered.new) > SHOWN_NEW:
        yield f"- … and {len(gathered.new) - SHOWN_NEW} more"
    yield ""


def new_runs(gathered: Gathered, results: Iterable[Result]) -> Iterator[str]:
    """A list of runs that are not as the ledger says, and what is said of them."""
    for result in results:
        where = gathered.labels[result.column.environment]
        yield f"- {code(result.row.id)} ({escaped(where)}): {escaped(result.held.message or result.row.detail)}"


def _cause(gathered: Gathered, cause: Cause) -> Iterator[str]:
    shown = [finding for finding in cause.findings if finding.results]
    yield f"### {escaped(cause.reason)}"
    yield ""
    for finding in shown:
        entry = finding.entry
        upstream = f"[{escaped(entry.upstream)}]({link(entry.upstream)})" if link(entry.upstream) else "unreported"
        when = "".join(f", where {name} is {code(value)}" for name, value in entry.when.items())
        said = f"{', '.join(sorted(entry.check))}{when}; upstream: {upstream}"
        yield f"- {code(entry.id)}: {said}. {_where(gathered, finding)}."
    yield ""
    example = min((finding.example for finding in shown if finding.example), key=_plainness)
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


def _where(gathered: Gathered, finding: Finding) -> str:
    parts = (
        f"{escaped(column.name)} on {escaped(gathered.labels[column.environment])}: {number}"
        for column, number in finding.columns.items()
    )
    return f"{count(len(finding.results), 'run')} ({'; '.join(parts)})"


def first(lines: Sequence[str], most: int) -> tuple[list[str], int]:
    """As many lines as fit into a number of bytes of UTF-8, and how many are left."""
    taken = size = 0
    for line in lines:
        size += len(line.encode()) + 1
        if size > most:
            break
        taken += 1
    return list(lines[:taken]), len(lines) - taken
