"""Changes from one rows file to another: verdicts, failed checks, kernels, output codes, and the sets of claims and runs."""

import fnmatch
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.markdown import plain
from conformance.results.diagnostics import Details, Offsets
from conformance.results.environments import Environment
from conformance.results.rows import Row
from conformance.results.severity import Severity
from conformance.results.shards import selects_by_rows
from conformance.results.status import Support, statuses
from conformance.results.verdicts import IN_ORDER

from . import documents
from .documents import count
from .load import NETWORKS, labels
from .parts import Part, parts_of

PAIRINGS = (
    ("torch", "python", "os", "arch", "cpu", "isa"),
    ("os", "arch", "cpu", "isa"),
    ("arch", "isa"),
    ("arch",),
    ("torch", "python"),
    (),
)
"""Sets of fields by which environments of the two files are paired. The first set that pairs most of them is used."""
KINDS = {
    "status": "Claims with another status",
    "gone claim": "Claims that went",
    "new claim": "Claims that came",
    "verdict": "Verdicts that flipped",
    "checks": "Other checks fail",
    "integers": "Integers that moved",
    "kernels": "Kernels that changed",
    "gone run": "Runs that went",
    "new run": "Runs that came",
}


@dataclass(frozen=True)
class Change:
    """A change of a run or claim, and whether it is for the worse."""

    kind: str
    id: str
    where: str
    worse: bool
    before: str
    after: str

    @property
    def description(self) -> str:
        """The values before and after, or the one that exists."""
        return f"{self.before} → {self.after}" if self.before and self.after else self.before or self.after


@dataclass(frozen=True)
class Difference:
    """Comparison of two rows files: the labels of paired environments, the number of common runs, and every change."""

    before: str
    after: str
    pairs: tuple[str, ...]
    unpaired: tuple[str, ...]
    compared: int
    changes: tuple[Change, ...]

    @property
    def worse(self) -> bool:
        """Whether anything got worse."""
        return any(change.worse for change in self.changes)


def compare(before: Path, after: Path) -> Difference:
    """Compare two rows files, each of one invocation or merged.

    Environments are paired by the fields in PAIRINGS. A run that one of the invocations did not select is not a change.
    Raises UsageError if no environments can be paired.
    """
    old, new = parts_of([before]), parts_of([after])
    names = labels(part.environment for part in (*old, *new))
    pairs = _paired(before, [part.environment for part in old], after, [part.environment for part in new])
    changes: list[Change] = []
    compared = 0
    for pair in pairs:
        old_parts, new_parts = (
            [part for part in parts if part.environment == environment]
            for parts, environment in zip((old, new), pair, strict=True)
        )
        pair_changes, common = _compared(old_parts, new_parts, _pair_label(names, pair))
        changes += pair_changes
        compared += common
    order = [*KINDS]
    changes.sort(key=lambda change: (not change.worse, order.index(change.kind), change.id, change.where))
    paired = tuple(_pair_label(names, pair) for pair in pairs)
    unpaired = tuple(name for environment, name in names.items() if not any(environment in pair for pair in pairs))
    return Difference(str(before), str(after), paired, unpaired, compared, tuple(changes))


def _pair_label(names: Mapping[Environment, str], pair: tuple[Environment, Environment]) -> str:
    before, after = pair
    return names[before] if before == after else f"{names[before]} → {names[after]}"


def _paired(
    before: Path, old: Iterable[Environment], after: Path, new: Iterable[Environment]
) -> list[tuple[Environment, Environment]]:
    best: list[tuple[Environment, Environment]] = []
    for names in PAIRINGS:
        old_groups, new_groups = ({}, {})  # type: ignore[var-annotated]
        for environments, by_key in ((set(old), old_groups), (set(new), new_groups)):
            for environment in environments:
                by_key.setdefault(tuple(getattr(environment, name) for name in names), []).append(environment)
        if all(len(group) == 1 for group in (*old_groups.values(), *new_groups.values())):
            pairs = [(old_groups[key][0], new_groups[key][0]) for key in old_groups if key in new_groups]
            best = max(best, pairs, key=len)
    if not best:
        raise UsageError(
            f"{before} and {after}: no environment of one is like one of the other, and there are several: name files of "
            "one environment each"
        )
    return sorted(best, key=lambda pair: labels(pair)[pair[0]])


def _selects(parts: Sequence[Part], row: Row) -> bool:
    """Whether any of these invocations selected this run, of which they have no row. Some have to be selected by name."""
    for part in parts:
        header = part.file.header
        if selects_by_rows(header):
            continue  # it selected what it has rows of
        globs = header.get("selection") or ["*"]
        if (
            row.backend in header.get("backends", ())
            and row.engine in header.get("engines", ())
            and any(fnmatch.fnmatchcase(row.id, glob) for glob in globs)
            and row.id not in header.get("not_asked_for", ())
            and any(row.profile == recorded.profile for recorded in part.file.rows)
        ):
            return True
    return False


def _claim(row: Row) -> str:
    return f"{row.claim}@{row.engine}"


def _compared(old_parts: Sequence[Part], new_parts: Sequence[Part], where: str) -> tuple[list[Change], int]:
    """The changes between the invocations of two environments, and the number of their common runs."""
    old, new = (
        {row.id: (row, part.details.get(row.id)) for part in parts for row in part.file.rows}
        for parts in (old_parts, new_parts)
    )
    changes: list[Change] = []
    for rows, other_rows, other_parts, gone in ((old, new, new_parts, True), (new, old, old_parts, False)):
        unmatched = [
            row for run_id, (row, _) in rows.items() if run_id not in other_rows and _selects(other_parts, row)
        ]
        other_claims = {_claim(row) for row, _ in other_rows.values()}
        verdicts: dict[tuple[str, str], Counter[str]] = {}
        for row in unmatched:
            key = ("run", row.id) if _claim(row) in other_claims else ("claim", _claim(row))
            verdicts.setdefault(key, Counter())[row.verdict] += 1
        for (unit, name), counter in verdicts.items():
            verdict_counts = ", ".join(f"{number} {verdict}" for verdict, number in counter.items())
            kind, sides = (f"gone {unit}", (verdict_counts, "")) if gone else (f"new {unit}", ("", verdict_counts))
            changes.append(Change(kind, name, where, gone, *sides))
    both = [run_id for run_id in old if run_id in new]
    changes += _statuses([old[run_id][0] for run_id in both], [new[run_id][0] for run_id in both], where)
    for run_id in both:
        changes += _changed(*old[run_id], *new[run_id], where)
    return changes, len(both)


def _statuses(before: Sequence[Row], after: Sequence[Row], where: str) -> Iterator[Change]:
    """Yield the claims whose status changed, as far as the runs tell that both invocations have."""
    order = [Support.WORKS, Support.EXCEPT, *reversed(Severity), Support.UNAVAILABLE]
    for engine in sorted({row.engine for row in before}):
        old, new = (
            statuses(row for row in rows if row.engine == engine and row.profile not in NETWORKS)
            for rows in (before, after)
        )
        for claim, status in old.items():
            was, became = status.status, new[claim].status
            if was is not became:
                worse = order.index(became) > order.index(was)
                yield Change("status", f"{claim}@{engine}", where, worse, was.phrase, became.phrase)


def _changed(
    before: Row, before_details: Details | None, after: Row, after_details: Details | None, where: str
) -> Iterator[Change]:
    """Yield the changes of one run."""
    if before.verdict != after.verdict:
        worse = IN_ORDER.index(after.verdict) > IN_ORDER.index(before.verdict)
        yield Change("verdict", before.id, where, worse, _outcome(before), _outcome(after))
        if not (before.verdict.executed and after.verdict.executed):
            return
    elif before.failed != after.failed:
        yield Change("checks", before.id, where, bool(after.failed - before.failed), _outcome(before), _outcome(after))
    if before.kernels != after.kernels and before.verdict.judged and after.verdict.judged:
        yield Change("kernels", before.id, where, False, _listed(before.kernels), _listed(after.kernels))
    if before.total is not None and after.total is not None:
        moved = _moved(before_details, after_details)
        figures = [_figures(row) for row in (before, after)]
        if moved or figures[0] != figures[1]:
            worse = (after.mismatched or 0) > (before.mismatched or 0) or (
                bool(after.mismatched) and (after.steps_max or 0) > (before.steps_max or 0)
            )
            figures_after = f"{figures[1]}; {moved}" if moved else figures[1]
            yield Change("integers", before.id, where, worse, figures[0], figures_after)


def _outcome(row: Row) -> str:
    return f"{row.verdict} ({', '.join(sorted(row.failed))})" if row.verdict.judged and row.failed else row.verdict


def _listed(kernels: Sequence[str]) -> str:
    return ", ".join(kernels) or "no quantized kernel"


def _figures(row: Row) -> str:
    counted = {"off": row.mismatched, "tied": row.ties, "tolerated": row.tolerated}
    parts = [f"{number} {name}" for name, number in counted.items() if number]
    furthest = f", by up to {count(row.steps_max, 'step')}" if row.steps_max else ""
    return f"{', '.join(parts) or 'all equal'} of {row.total}{furthest}"


def _moved(before: Details | None, after: Details | None) -> str:
    """The number of output codes that moved and their greatest distance, computed from the offsets to a common golden.

    Empty if no code moved or no offsets are stored.
    """
    if before is None or after is None:
        return ""
    parts = []
    for old, new in zip(before.outputs, after.outputs, strict=False):
        if old.unit != "steps" or new.unit != "steps" or (old.codes and old.codes == new.codes):
            continue
        if old.golden != new.golden:
            parts.append("the golden is another one")
            continue
        distances = [*_distances(old, new)]
        if distances:
            least = "" if old.complete and new.complete else "at least "
            parts.append(f"{least}{len(distances)} moved, by up to {max(distances):g} steps")
    return "; ".join(parts)


def _distances(before: Offsets, after: Offsets) -> Iterator[float]:
    old, new = (dict(zip(offsets.positions, offsets.offsets, strict=True)) for offsets in (before, after))
    for position in old.keys() | new.keys():
        # an offset that is not stored need not be zero
        if (position in old or before.complete) and (position in new or after.complete):
            distance = abs(old.get(position, 0) - new.get(position, 0))
            if distance:
                yield distance


def text(difference: Difference) -> Iterator[str]:
    """Yield lines for a terminal."""
    for pair in difference.pairs:
        yield f"compared: {plain(pair)}"
    for label in difference.unpaired:
        yield f"not compared: {plain(label)}"
    yield _totals(difference)
    for change in difference.changes:
        mark = "worse" if change.worse else "     "
        yield f"{mark}  {change.kind}: {plain(change.id)} [{plain(change.where)}]: {plain(change.description)}"


def markdown(difference: Difference) -> list[str]:
    """Lines of markdown."""
    return documents.lines("diff.md", difference=difference, totals=_totals(difference), kinds=KINDS)


def _totals(difference: Difference) -> str:
    worse = sum(change.worse for change in difference.changes)
    by_kind = Counter(change.kind for change in difference.changes)
    parts = ", ".join(f"{by_kind[kind]} {kind}" for kind in KINDS if by_kind[kind])
    return (
        f"{count(difference.compared, 'run')} compared: {count(len(difference.changes), 'change')}"
        f"{f' ({parts})' if parts else ''}, {worse} for the worse"
    )


def as_json(difference: Difference) -> Iterator[str]:
    """Yield one JSON object."""
    values: dict[str, Any] = {**asdict(difference), "worse": difference.worse}
    yield json.dumps(values, indent=1)


FORMATS = {"text": text, "markdown": markdown, "json": as_json}
