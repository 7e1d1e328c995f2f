"""Units of work: which runs are judged together."""

from collections.abc import Iterable

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.execution.units import EACH, LONGEST, SHORTEST, Unit, estimated, limit, units
from conformance.results.profiles import profile_names

RUNS = [*runs(backend("fbgemm"))]


def group_of(run: Run) -> tuple[str, ...]:
    return (run.claim.id, run.flow, run.profile if run.profile in ("constraints", "laws", "codes") else "case")


def positions(divided: Iterable[Unit]) -> dict[tuple[str, ...], list[int]]:
    """For each group of runs that share work the positions of its units."""
    places: dict[tuple[str, ...], list[int]] = {}
    for number, unit in enumerate(divided):
        for group in dict.fromkeys(map(group_of, unit.runs)):
            places.setdefault(group, []).append(number)
    return places


def test_every_run_is_in_one_unit_in_whatever_order_they_come() -> None:
    for order in (RUNS, RUNS[::-1]):
        divided = [*units(order)]
        assert sorted(run.id for unit in divided for run in unit.runs) == sorted(run.id for run in RUNS)
        assert len({unit.name for unit in divided}) == len(divided)


def test_runs_that_share_work_are_in_one_unit_and_next_to_each_other() -> None:
    divided = [*units(RUNS)]
    seconds = dict.fromkeys(map(group_of, RUNS), 0.0)
    for run in RUNS:
        seconds[group_of(run)] += estimated(run)
    for group, places in positions(divided).items():
        assert len(places) <= -(-seconds[group] // LONGEST) + 1, group
        if seconds[group] <= LONGEST:
            assert len(places) == 1, group
    for unit in divided:
        groups = [group_of(run) for run in unit.runs]
        assert groups == sorted(groups, key=groups.index)


def test_all_engines_of_a_case_are_in_one_unit() -> None:
    unit_of = {run.id: unit.name for unit in units(RUNS) for run in unit.runs}
    both = [run for run in RUNS if run.engine == "x86" and run.profile in profile_names("case")]
    assert both
    for run in both:
        assert unit_of[run.id] == unit_of[run.id.replace("@x86", "@fbgemm")]


def test_no_unit_takes_much_longer_than_the_limit_and_few_are_short() -> None:
    divided = [*units(RUNS)]
    assert max(unit.seconds for unit in divided) <= 1.5 * LONGEST
    assert sum(unit.seconds for unit in divided) / len(divided) > LONGEST / 2


def test_a_run_that_is_known_to_crash_is_alone() -> None:
    crashing = {RUNS[3].id, RUNS[500].id}
    divided = [*units(RUNS, crashing)]
    assert {unit.runs[0].id for unit in divided if len(unit.runs) == 1 and unit.name.startswith("alone ")} == crashing
    assert sum(len(unit.runs) for unit in divided) == len(RUNS)


def test_a_few_runs_are_shared_by_all_workers() -> None:
    few = [run for run in RUNS if run.profile in ("exact", "typical")][:400]
    assert EACH * SHORTEST < sum(map(estimated, few)) < EACH * SHORTEST * 4
    alone, shared = ([*units(few, workers=workers)] for workers in (1, 4))
    assert len(alone) < len(shared)
    assert max(unit.seconds for unit in shared) <= 1.5 * SHORTEST
    assert limit(few, 1) <= LONGEST
    assert limit(few[:1], 1) == SHORTEST
    assert limit(RUNS * 10, 1) == LONGEST
