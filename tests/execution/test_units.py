"""Units of work: which runs are judged together."""

from collections.abc import Iterable

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.execution.units import EACH, FIRST, LONGEST, SHARE, SHORTEST, Unit, estimated, limit, telling, units
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


def is_first(unit: Unit) -> bool:
    return unit.name.startswith(FIRST)


def test_runs_that_share_work_are_in_one_unit_and_next_to_each_other() -> None:
    divided = [*units(RUNS)]
    rest = [unit for unit in divided if not is_first(unit)]
    seconds: dict[tuple[str, ...], float] = {}
    for run in (run for unit in rest for run in unit.runs):
        seconds[group_of(run)] = seconds.get(group_of(run), 0.0) + estimated(run)
    for group, places in positions(rest).items():
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
    rest = [unit for unit in divided if not is_first(unit)]
    assert sum(unit.seconds for unit in rest) / len(rest) > LONGEST / 2


def test_the_most_telling_runs_are_in_short_units_in_their_order() -> None:
    first = [unit for unit in units(RUNS) if is_first(unit)]
    assert [unit.name for unit in first] == [f"{FIRST} {number}" for number in range(len(first))]
    assert first[0].seconds <= SHORTEST / 2 < SHORTEST < first[-2].seconds
    taken = sum(unit.seconds for unit in first)
    assert 0.9 * SHARE < taken / sum(map(estimated, RUNS)) <= SHARE
    told = [case[0] for case in telling(RUNS)]
    assert {run.id for run in told[:10]} <= {run.id for run in first[0].runs}


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
