"""Dealing runs and searches to shards."""

from collections.abc import Iterable, Mapping, Sequence

from conformance.results.estimates import SEARCH
from conformance.results.profiles import PROFILES
from conformance.results.shards import Unit, deal

from .runs import Run

PER_SECOND = 10_000
"""Weights are durations in the resolution of rows: sums of integers do not depend on the version of Python."""


def dealt(runs: Sequence[Run], searches: Iterable[str], seconds: Mapping[str, float], of: int) -> dict[str, int]:
    """The number of the shard of each run and search, by id.

    A run weighs its `seconds`, or if these do not have it the typical duration of its profile. Runs of the same claim, flow
    and kind of test share prepared models, and go to one shard; if they are more than a shard's share, each case goes by
    itself. Searches, of which there are few, are dealt first, then one kind of test after the other, because an invocation
    may run one kind alone.
    """
    weights = {run.id: round(PER_SECOND * (seconds.get(run.id) or PROFILES[run.profile].seconds)) for run in runs}
    units = {name: Unit(name, round(PER_SECOND * SEARCH)) for name in searches}
    share = (sum(weights.values()) + sum(unit.weight for unit in units.values())) / of
    together: dict[tuple[int, str], list[Run]] = {}
    for run in runs:
        together.setdefault((1 + _kind(run), f"{run.claim.id}/{run.flow}"), []).append(run)
    unit_of = {name: name for name in units}
    for (order, name), members in together.items():
        apart = sum(weights[run.id] for run in members) > share
        for run in members:
            unit_of[run.id] = run.id.rpartition("@")[0] if apart else f"{name}/{order}"
            earlier = units.get(unit_of[run.id], Unit(unit_of[run.id], 0, order))
            units[earlier.name] = Unit(earlier.name, earlier.weight + weights[run.id], order)
    shards = deal(units.values(), of)
    return {name: shards[unit] for name, unit in unit_of.items()}


KINDS = ("case", *(profile.name for profile in PROFILES.values() if profile.kind != "case"))
"""Kinds of test: cases, and each property."""


def _kind(run: Run) -> int:
    profile = PROFILES[run.profile]
    return KINDS.index(profile.kind if profile.kind == "case" else profile.name)
