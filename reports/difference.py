"""What changed from one rows file to another: verdicts, kernels, integers, and the claims themselves."""

import fnmatch
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.markdown import code, escaped, plain
from conformance.results.diagnostics import Details, Offsets
from conformance.results.rows import Row

from .findings import count
from .gathered import Environment, Part, labels, parts_of

PAIRINGS = (
    ("torch", "python", "os", "arch", "cpu", "isa"),
    ("os", "arch", "cpu", "isa"),
    ("arch", "isa"),
    ("arch",),
    ("torch", "python"),
    (),
)
"""Fields in which environments of the two files have to be the same to be compared; the first that pairs most of them."""
RANK = {"conforms": 0, "deviates": 1, "crashes": 2, "unavailable": 3}
"""Verdicts from good to bad. What is no longer executed may hide anything."""
KINDS = {
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
    """One thing that changed, and whether for the worse."""

    kind: str
    id: str
    where: str
    worse: bool
    before: str
    after: str

    @property
    def words(self) -> str:
        return f"{self.before} → {self.after}" if self.before and self.after else self.before or self.after


@dataclass(frozen=True)
class Difference:
    """Two rows files compared: the pairs of environments in words, how many runs both have, and every change."""

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

    Environments are paired by what they have in common. A run that one file did not select is no change. Raises UsageError if
    no environments can be paired.
    """
    old, new = parts_of([before]), parts_of([after])
    names = labels(part.environment for part in (*old, *new))
    pairs = _paired(before, [part.environment for part in old], after, [part.environment for part in new])
    changes: list[Change] = []
    compared = 0
    for one, other in pairs:
        was, now = (
            [part for part in parts if part.environment == where] for parts, where in ((old, one), (new, other))
        )
        where = names[one] if one == other else f"{names[one]} → {names[other]}"
        found, common = _compared(was, now, where)
        changes += found
        compared += common
    lone = [where for where in names if not any(where in pair for pair in pairs)]
    order = [*KINDS]
    changes.sort(key=lambda change: (not change.worse, order.index(change.kind), change.id, change.where))
    said = tuple(names[one] if one == other else f"{names[one]} → {names[other]}" for one, other in pairs)
    return Difference(str(before), str(after), said, tuple(names[one] for one in lone), compared, tuple(changes))


def _paired(
    before: Path, old: Iterable[Environment], after: Path, new: Iterable[Environment]
) -> list[tuple[Environment, Environment]]:
    best: list[tuple[Environment, Environment]] = []
    for names in PAIRINGS:
        one, other = ({}, {})  # type: ignore[var-annotated]
        for environments, by_key in ((set(old), one), (set(new), other)):
            for where in environments:
                by_key.setdefault(tuple(getattr(where, name) for name in names), []).append(where)
        if all(len(group) == 1 for group in (*one.values(), *other.values())):
            pairs = [(one[key][0], other[key][0]) for key in one if key in other]
            best = max(best, pairs, key=len)
    if not best:
        raise UsageError(
            f"{before} and {after}: no environment of one is like one of the other, and there are several: name files of "
            "one environment each"
        )
    return sorted(best, key=lambda pair: labels(pair)[pair[0]])


def _selects(parts: Sequence[Part], row: Row) -> bool:
    """Whether invocations would have made a row, had there been such a run. Some runs are made only if asked for by name."""
    for part in parts:
        header = part.file.header
        globs = header.get("selection") or ["*"]
        if (
            row.backend in header.get("backends", ())
            and row.engine in header.get("engines", ())
            and any(fnmatch.fnmatchcase(row.id, glob) for glob in globs)
            and row.id not in header.get("not_asked_for", ())
            and any(row.profile == other.profile for other in part.file.rows)
        ):
            return True
    return False


def _claim(row: Row) -> str:
    return f"{row.claim}@{row.engine}"


def _compared(was: Sequence[Part], now: Sequence[Part], where: str) -> tuple[list[Change], int]:
    """The changes between the invocations of two environments, and how many runs both have."""
    old, new = (
        {row.id: (row, part.details.get(row.id)) for part in parts for row in part.file.rows} for parts in (was, now)
    )
    changes: list[Change] = []
    for mine, theirs, others, went in ((old, new, now, True), (new, old, was, False)):
        lone = [row for run_id, (row, _) in mine.items() if run_id not in theirs and _selects(others, row)]
        kept = {_claim(row) for row, _ in theirs.values()}
        verdicts: dict[tuple[str, str], Counter[str]] = {}
        for row in lone:
            what = ("run", row.id) if _claim(row) in kept else ("claim", _claim(row))
            verdicts.setdefault(what, Counter())[row.verdict] += 1
        for (unit, name), counter in verdicts.items():
            said = ", ".join(f"{number} {verdict}" for verdict, number in counter.items())
            kind, sides = (f"gone {unit}", (said, "")) if went else (f"new {unit}", ("", said))
            changes.append(Change(kind, name, where, went, *sides))
    both = [run_id for run_id in old if run_id in new]
    for run_id in both:
        changes += _changed(*old[run_id], *new[run_id], where)
    return changes, len(both)


def _changed(one: Row, seen: Details | None, other: Row, then: Details | None, where: str) -> Iterator[Change]:
    """How one run changed."""
    if one.verdict != other.verdict:
        worse = RANK[other.verdict] > RANK[one.verdict]
        yield Change("verdict", one.id, where, worse, _said(one), _said(other))
        if "unavailable" in (one.verdict, other.verdict):
            return
    elif one.failed != other.failed:
        yield Change("checks", one.id, where, bool(other.failed - one.failed), _said(one), _said(other))
    if one.kernels != other.kernels and "crashes" not in (one.verdict, other.verdict):
        yield Change("kernels", one.id, where, False, _listed(one.kernels), _listed(other.kernels))
    if one.total is not None and other.total is not None:
        moved = _moved(seen, then)
        figures = [_figures(row) for row in (one, other)]
        if moved or figures[0] != figures[1]:
            further = (other.mismatched or 0) > (one.mismatched or 0) or (
                bool(other.mismatched) and (other.steps_max or 0) > (one.steps_max or 0)
            )
            after = f"{figures[1]}; {moved}" if moved else figures[1]
            yield Change("integers", one.id, where, further, figures[0], after)


def _said(row: Row) -> str:
    return f"{row.verdict} ({', '.join(sorted(row.failed))})" if row.failed - {"crashes"} else row.verdict


def _listed(kernels: Sequence[str]) -> str:
    return ", ".join(kernels) or "no quantized kernel"


def _figures(row: Row) -> str:
    counted = {"off": row.mismatched, "tied": row.ties, "tolerated": row.tolerated}
    parts = [f"{number} {name}" for name, number in counted.items() if number]
    furthest = f", by up to {count(row.steps_max, 'step')}" if row.steps_max else ""
    return f"{', '.join(parts) or 'all equal'} of {row.total}{furthest}"


def _moved(seen: Details | None, then: Details | None) -> str:
    """How many integers moved and how far, as far as the offsets from one golden tell; empty if none or nothing is known."""
    if seen is None or then is None:
        return ""
    said = []
    for one, other in zip(seen.outputs, then.outputs, strict=False):
        if one.unit != "steps" or other.unit != "steps" or (one.codes and one.codes == other.codes):
            continue
        if one.golden != other.golden:
            said.append("the golden is another one")
            continue
        distances = [*_distances(one, other)]
        if distances:
            least = "" if one.complete and other.complete else "at least "
            said.append(f"{least}{len(distances)} moved, by up to {max(distances):g} steps")
    return "; ".join(said)


def _distances(one: Offsets, other: Offsets) -> Iterator[float]:
    was, now = (dict(zip(of.positions, of.offsets, strict=True)) for of in (one, other))
    for position in was.keys() | now.keys():
        # what one side had to leave out is not known to be zero
        if (position in was or one.complete) and (position in now or other.complete):
            distance = abs(was.get(position, 0) - now.get(position, 0))
            if distance:
                yield distance


def text(found: Difference) -> Iterator[str]:
    """The difference for a terminal."""
    for pair in found.pairs:
        yield f"compared: {plain(pair)}"
    for where in found.unpaired:
        yield f"not compared: {plain(where)}"
    yield _totals(found)
    for change in found.changes:
        mark = "worse" if change.worse else "     "
        yield f"{mark}  {change.kind}: {plain(change.id)} [{plain(change.where)}]: {plain(change.words)}"


def markdown(found: Difference) -> Iterator[str]:
    """The difference as markdown."""
    yield f"# From {code(found.before)} to {code(found.after)}"
    yield ""
    for pair in found.pairs:
        yield f"- compared: {escaped(pair)}"
    for where in found.unpaired:
        yield f"- not compared: {escaped(where)}"
    yield ""
    yield _totals(found)
    yield ""
    for kind, title in KINDS.items():
        changes = [change for change in found.changes if change.kind == kind]
        if not changes:
            continue
        yield f"## {title} ({len(changes)})"
        yield ""
        for change in changes:
            mark = "**worse** " if change.worse else ""
            where = f" ({escaped(change.where)})" if len(found.pairs) > 1 else ""
            yield f"- {mark}{code(change.id)}{where}: {escaped(change.words)}"
        yield ""


def _totals(found: Difference) -> str:
    worse = sum(change.worse for change in found.changes)
    by_kind = Counter(change.kind for change in found.changes)
    parts = ", ".join(f"{by_kind[kind]} {kind}" for kind in KINDS if by_kind[kind])
    return (
        f"{count(found.compared, 'run')} compared: {count(len(found.changes), 'change')}"
        f"{f' ({parts})' if parts else ''}, {worse} for the worse"
    )


def as_json(found: Difference) -> Iterator[str]:
    """The difference as one JSON object."""
    values: dict[str, Any] = {**asdict(found), "worse": found.worse}
    yield json.dumps(values, indent=1)


FORMATS = {"text": text, "markdown": markdown, "json": as_json}
