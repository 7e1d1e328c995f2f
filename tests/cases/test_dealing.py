"""Runs and searches are dealt to shards: each to one, evenly, and runs that share work to the same."""

from collections import Counter

import pytest

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.cases.shards import dealt
from conformance.results.estimates import SEARCH
from conformance.results.profiles import PROFILES


@pytest.fixture(scope="module")
def every() -> list[Run]:
    return [*runs(backend("fbgemm"))]


def loads(every: list[Run], shards: dict[str, int], profile: str = "") -> list[float]:
    """The typical seconds of each shard, of one profile or of all."""
    seconds: Counter[int] = Counter()
    for run in every:
        if profile in ("", run.profile):
            seconds[shards[run.id]] += PROFILES[run.profile].seconds  # type: ignore[assignment]
    return [seconds[number] for number in sorted(seconds)]


@pytest.mark.parametrize("of", [1, 2, 5])
def test_shards_are_balanced_and_have_some_of_each_kind_of_test(every: list[Run], of: int) -> None:
    shards = dealt(every, [], {}, of)
    assert shards.keys() == {run.id for run in every}
    # what is dealt first may be uneven by one claim's cases, which the next kind of test makes up for
    for profile, uneven in (("", 1.0), ("laws", 5.0), ("constraints", 5.0)):
        seconds = loads(every, shards, profile)
        assert len(seconds) == of
        assert max(seconds) - min(seconds) < uneven


def test_runs_of_a_claim_and_flow_are_together_on_every_engine(every: list[Run]) -> None:
    shards = dealt(every, [], {}, 4)
    together: dict[tuple[str, ...], set[int]] = {}
    for run in every:
        kind = PROFILES[run.profile].kind
        together.setdefault((run.claim.id, run.flow, kind if kind == "case" else run.profile), set()).add(
            shards[run.id]
        )
    assert {len(numbers) for numbers in together.values()} == {1}


def test_a_claim_that_is_more_than_a_share_is_dealt_by_case(every: list[Run]) -> None:
    claim = [run for run in every if run.claim.id == "fbgemm/nn.Conv2d/static-quint8" and run.flow == "ptq"]
    cases = [run for run in claim if run.profile == "exact"]
    shards = dealt(cases, [], {}, 3)
    one_case = 2 * PROFILES["exact"].seconds  # on two engines
    assert max(loads(cases, shards)) - min(loads(cases, shards)) < 1.1 * one_case
    numbers: dict[str, set[int]] = {}
    for run in cases:
        numbers.setdefault(run.key, set()).add(shards[run.id])
    assert {len(shards) for shards in numbers.values()} == {1}


def test_runs_weigh_what_they_took_before(every: list[Run]) -> None:
    slow = next(run for run in every if run.profile == "exact")
    rest = [run for run in every if run.claim is not slow.claim]
    total = sum(PROFILES[run.profile].seconds for run in rest)
    shards = dealt([slow, *rest], [], {slow.id: total}, 2)
    assert {shards[run.id] for run in rest} == {3 - shards[slow.id]}
    # a duration of zero is that of a crash
    assert dealt(every, [], {slow.id: 0.0}, 2) == dealt(every, [], {}, 2)


def test_searches_are_dealt_too_and_runs_make_up_for_them(every: list[Run]) -> None:
    searches = [f"fbgemm/{number}@fbgemm" for number in range(5)]
    shards = dealt(every, searches, {}, 2)
    searched = Counter(shards[name] for name in searches)
    assert sorted(searched.values()) == [2, 3]
    one, other = (load + SEARCH * searched[number] for number, load in enumerate(loads(every, shards), 1))
    assert abs(one - other) < 1.0


def test_the_order_of_runs_does_not_move_a_cut(every: list[Run]) -> None:
    assert dealt(every[::-1], [], {}, 3) == dealt(every, [], {}, 3)
