"""Changes from one rows file to another: in verdicts, kernels, output codes, and the set of claims."""

import fnmatch
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.markdown import code, escaped, plain
from conformance.results.diagnostics import Details, Offsets
from conformance.results.rows import Row
from conformance.results.verdicts import IN_ORDER, Verdict

from .findings import count
from .load import Environment, Part, labels, parts_of

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
    def words(self) -> str:
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
            [part for part in parts if part.environment == where] for parts, where in zip((old, new), pair, strict=True)
        )
        pair_changes, common = _compared(old_parts, new_parts, _pair_label(names, pair))
        changes += pair_changes
        compared += common
    lone = [where for where in names if not any(where in pair for pair in pairs)]
    order = [*KINDS]
    changes.sort(key=lambda change: (not change.worse, order.index(change.kind), change.id, change.where))
    paired = tuple(_pair_label(names, pair) for pair in pairs)
    unpaired = tuple(names[where] for where in lone)
    return Difference(str(before), str(after), paired, unpaired, compared, tuple(changes))


def _pair_label(names: Mapping[Environment, str], pair: tuple[Environment, Environment]) -> str:
    one, other = pair
    return names[one] if one == other else f"{names[one]} → {names[other]}"


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
    """Whether any of these invocations would have recorded a row for this run. Some runs have to be selected by name."""
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
    """Yield the changes of one run."""
    if one.verdict != other.verdict:
        worse = IN_ORDER.index(other.verdict) > IN_ORDER.index(one.verdict)
        yield Change("verdict", one.id, where, worse, _outcome(one), _outcome(other))
        if not (one.verdict.executed and other.verdict.executed):
            return
    elif one.failed != other.failed:
        yield Change("checks", one.id, where, bool(other.failed - one.failed), _outcome(one), _outcome(other))
    if one.kernels != other.kernels and Verdict.CRASHES not in (one.verdict, other.verdict):
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


def _outcome(row: Row) -> str:
    return f"{row.verdict} ({', '.join(sorted(row.failed))})" if row.failed - {"crashes"} else row.verdict


def _listed(kernels: Sequence[str]) -> str:
    return ", ".join(kernels) or "no quantized kernel"


def _figures(row: Row) -> str:
    counted = {"off": row.mismatched, "tied": row.ties, "tolerated": row.tolerated}
    parts = [f"{number} {name}" for name, number in counted.items() if number]
    furthest = f", by up to {count(row.steps_max, 'step')}" if row.steps_max else ""
    return f"{', '.join(parts) or 'all equal'} of {row.total}{furthest}"


def _moved(seen: Details | None, then: Details | None) -> str:
    """How many output codes moved and how far, by the offsets to a common golden; empty if none moved or none are kept."""
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
        # an offset that one side does not keep need not be zero
        if (position in was or one.complete) and (position in now or other.complete):
            distance = abs(was.get(position, 0) - now.get(position, 0))
            if distance:
                yield distance


def text(difference: Difference) -> Iterator[str]:
    """Yield lines for a terminal."""
    for pair in difference.pairs:
        yield f"compared: {plain(pair)}"
    for where in difference.unpaired:
        yield f"not compared: {plain(where)}"
    yield _totals(difference)
    for change in difference.changes:
        mark = "worse" if change.worse else "     "
        yield f"{mark}  {change.kind}: {plain(change.id)} [{plain(change.where)}]: {plain(change.words)}"


def markdown(difference: Difference) -> Iterator[str]:
    """Yield lines of markdown."""
    yield f"# From {code(difference.before)} to {code(difference.after)}"
    yield ""
    for pair in difference.pairs:
        yield f"- compared: {escaped(pair)}"
    for where in difference.unpaired:
        yield f"- not compared: {escaped(where)}"
    yield ""
    yield _totals(difference)
    yield ""
    for kind, title in KINDS.items():
        changes = [change for change in difference.changes if change.kind == kind]
        if not changes:
            continue
        yield f"## {title} ({len(changes)})"
        yield ""
        for change in changes:
            mark = "**worse** " if change.worse else ""
            where = f" ({escaped(change.where)})" if len(difference.pairs) > 1 else ""
            yield f"- {mark}{code(change.id)}{where}: {escaped(change.words)}"
        yield ""


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
