"""Units of work: runs that one worker judges in one batch, because they share work."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.cases.conditions import most_telling
from conformance.cases.runs import Run
from conformance.results.profiles import PROFILES

SHORTEST, LONGEST = 1.5, 8.0
"""Estimated seconds of a unit, if there are enough runs. What a child does for the first time takes some 0.2 s in all; after
a death the rest of a batch is repeated, and at the end of an invocation workers wait for the last unit of another one."""

SHARE = 0.12
"""The part of the time of an invocation that its most telling runs take, which come first."""

GROWTH = 10
"""A unit of them may be longer than half of the shortest by the part of one in so many of what is before it."""

FIRST = "first"
"""How their units are named."""

EACH = 8
"""The number of units that every worker should get: some for the end, when the longest are done."""


@dataclass(frozen=True)
class Unit:
    """Runs that are judged in one batch, in this order. `place` is that of the most telling runs among their units."""

    name: str
    runs: Sequence[Run]
    place: int | None = None

    @cached_property
    def seconds(self) -> float:
        """How long the unit is expected to take."""
        return sum(map(estimated, self.runs))


def estimated(run: Run) -> float:
    """How long a run is expected to take."""
    return PROFILES[run.profile].seconds


def limit(runs: Iterable[Run], workers: int) -> float:
    """Estimated seconds of a unit when so many workers share these runs."""
    return min(LONGEST, max(SHORTEST, sum(map(estimated, runs)) / (EACH * workers)))


def units(runs: Sequence[Run], alone: Collection[str] = (), workers: int = 1) -> Iterator[Unit]:
    """Divide runs into units for so many workers.

    The runs of a claim in one flow stay together up to the limit, then all engines of a case. Small claims share a unit. The
    order of the runs decides which do. The runs with the ids `alone` have a unit each. The most telling runs have units of
    their own, named FIRST and numbered in their order.
    """
    yield from (Unit(f"alone {run.id}", [run]) for run in runs if run.id in alone)
    together = [run for run in runs if run.id not in alone]
    first = telling(together)
    yield from _in_order(first)
    begun = {run.id for case in first for run in case}
    yield from _divided([run for run in together if run.id not in begun], limit(runs, workers))


def telling(runs: Sequence[Run]) -> list[list[Run]]:
    """The cases that come first, each on all engines, in order: the most telling ones, which take a SHARE of the time."""
    left, cases = SHARE * sum(map(estimated, runs)), dict[str, list[Run]]()
    for run in runs:
        if run.variant is not None and PROFILES[run.profile].kind == "case":
            cases.setdefault(run.key, []).append(run)
    costs = {case[0].id: sum(map(estimated, case)) for case in cases.values()}
    found = []
    for run in most_telling([case[0] for case in cases.values()], costs):
        left -= costs[run.id]
        if left < 0:
            break
        found.append(cases[run.key])
    return found


def _in_order(cases: Iterable[list[Run]]) -> Iterator[Unit]:
    """Units of these cases, numbered in their order: the first are short, so that they are reported soon."""
    number, kept, before, seconds = 0, list[Run](), 0.0, 0.0
    for case in cases:
        more = sum(map(estimated, case))
        if kept and seconds + more > min(LONGEST, SHORTEST / 2 + before / GROWTH):
            yield Unit(f"{FIRST} {number}", _sorted(kept), number)
            number, kept, before, seconds = number + 1, [], before + seconds, 0.0
        kept, seconds = kept + case, seconds + more
    if kept:
        yield Unit(f"{FIRST} {number}", _sorted(kept), number)


def _sorted(runs: Iterable[Run]) -> list[Run]:
    """Runs with those next to each other that share work, and of these the engines of a case."""
    return sorted(runs, key=lambda run: (run.claim.id, run.flow, PROFILES[run.profile].kind, run.key))


def _divided(runs: Iterable[Run], most: float) -> Iterator[Unit]:
    """Units of at most so many seconds, of runs that share work."""
    groups: dict[tuple[object, ...], dict[str, list[Run]]] = {}
    for run in runs:
        groups.setdefault(_sharing(run), {}).setdefault(run.key, []).append(run)
    number, kept, seconds = 0, list[Run](), 0.0
    for part in (part for cases in groups.values() for part in _parts([*cases.values()], most)):
        more = sum(map(estimated, part))
        if kept and seconds + more > most:
            yield Unit(f"unit {number}", kept)
            number, kept, seconds = number + 1, [], 0.0
        kept = kept + part
        seconds += more
    if kept:
        yield Unit(f"unit {number}", kept)


def _sharing(run: Run) -> tuple[object, ...]:
    """What the runs that share work with a run have in common."""
    claim = (run.claim.id, run.flow)
    if PROFILES[run.profile].kind == "case":
        return claim
    return (*claim, run.profile)


def _parts(cases: Sequence[list[Run]], most: float) -> Iterator[list[Run]]:
    """The runs of cases in as few parts of whole cases as `most` seconds allow, of about equal length."""
    whole = sum(estimated(run) for case in cases for run in case)
    share = whole / -(-whole // most)
    part, seconds = list[Run](), 0.0
    for case in cases:
        more = sum(map(estimated, case))
        if part and seconds + more / 2 > share:
            yield part
            part, seconds = [], 0.0
        part = part + case
        seconds += more
    yield part
