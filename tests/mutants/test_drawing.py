"""Drawing: the same seed gives the same mutants, which their calls meet; titles say what a mutant does."""

from collections.abc import Iterator
from random import Random

import pytest

from .drawing import (
    TILES,
    Population,
    candidate,
    candidates,
    changeable,
    drawn_condition,
    drawn_region,
    group_of,
    joint_condition,
    joint_conditions,
    tiled,
)
from .facts import Fact
from .mutant import Condition, Effect, Mutant, Region
from .population import Seen

FACTS: dict[str, Fact] = {
    "qx size(0)": 2,
    "qx size(1)": 12,
    "qx elements": 24,
    "qx zero point": 7,
    "qx scale exponent": -4,
    "qx format": "contiguous",
    "stride": "1x2",
    "groups": 3,
    "products": 12,
    "bias": True,
    "call": 1,
}
CONVOLUTION = Seen("quantized.conv2d", FACTS, (2, 9, 1, 5), "codes", (0, 7, 255), (), ("qx", "packed_weight"))
RELU = Seen("aten.relu", {"self size(0)": 33, "call": 1}, (33,), "codes", (3, 4), (3, 200), ("self",))


def population(*calls: Seen) -> Population:
    return Population([calls])


def drawn(seed: int, count: int = 60) -> list[Mutant]:
    others = [Seen("quantized.conv2d", {**FACTS, "groups": n, "qx size(0)": n}, (2, 9), "codes") for n in range(9)]
    of = population(CONVOLUTION, *others, RELU)
    return [mutant for mutant, _ in candidates(of, "fbgemm", "x86", seed, 0, count)]


def test_the_same_seed_gives_the_same_mutants() -> None:
    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_a_candidate_depends_on_its_number_and_not_on_the_number_of_candidates() -> None:
    assert drawn(3, 30) == drawn(3)[: len(drawn(3, 30))]


@pytest.mark.parametrize("seen", [CONVOLUTION, RELU])
def test_a_mutant_meets_the_call_that_it_is_drawn_from(seen: Seen) -> None:
    for number in range(200):
        for fact, value in seen.facts.items():
            assert drawn_condition(Random(number), fact, value).holds(seen.facts)


def regions() -> Iterator[Region]:
    yield from (drawn_region(Random(number), CONVOLUTION) for number in range(300))


def test_a_region_is_one_that_the_result_has() -> None:
    for region in regions():
        assert -2 <= region.axis < 2
        if region.kind in ("index", "beyond"):
            assert region.number < CONVOLUTION.shape[region.axis]
        if region.kind == "tail":
            assert 90 % region.width
        if region.kind == "code":
            assert region.number in CONVOLUTION.codes


def test_a_size_is_required_to_be_equal_only_where_kernels_distinguish_it() -> None:
    sizes = [drawn_condition(Random(number), "qx size(1)", 12) for number in range(200)]
    assert not [condition for condition in sizes if condition.relation == "=="]
    assert [c for c in (drawn_condition(Random(n), "qx size(1)", 15) for n in range(200)) if c.relation == "=="]


def test_joint_conditions_are_of_different_kinds_and_hold_together() -> None:
    counts = set()
    for number in range(300):
        conditions = joint_conditions(Random(number), CONVOLUTION)
        assert all(condition.holds(FACTS) for condition in conditions)
        assert len({group_of(condition.fact) for condition in conditions}) == len(conditions)
        counts.add(len(conditions))
    assert counts == {1, 2, 3}


def test_a_joint_condition_on_a_size_is_a_remainder_or_a_bound() -> None:
    sizes = [joint_condition(Random(number), "qx size(1)", 67) for number in range(200)]
    assert {(one.relation, one.modulus) for one in sizes if one.relation == "%"} == {("%", tile) for tile in TILES}
    assert {one.value for one in sizes if one.relation == ">="} == {tile + 1 for tile in TILES}
    assert not [one for one in sizes if one.relation == "<="]
    assert Condition("products", ">=", 257) in {
        joint_condition(Random(number), "products", 300) for number in range(99)
    }
    assert joint_condition(Random(0), "qx size(1)", 3) == Condition("qx size(1)", "==", 3)


def test_a_joint_condition_on_a_zero_point_is_about_the_ends_of_the_codes() -> None:
    assert joint_condition(Random(0), "qx zero point", 128) == Condition("qx zero point", "==", 128)
    inner = {joint_condition(Random(number), "qx zero point", 107) for number in range(20)}
    assert inner == {Condition("qx zero point", ">=", 1), Condition("qx zero point", "<=", 254)}


def test_a_kernel_that_treats_all_elements_alike_knows_their_number_alone() -> None:
    facts: dict[str, Fact] = {"self size(1)": 33, "self elements": 66, "self format": "channels_last", "call": 1}
    drawn = [joint_conditions(Random(n), Seen("aten.relu", facts, (2, 33), "codes")) for n in range(100)]
    assert {condition.fact for conditions in drawn for condition in conditions} == {"self elements", "call"}


def test_a_region_of_a_joint_draw_begins_within_the_first_tiles() -> None:
    found = [tiled(Random(number), Region("index", 1, 900)).number for number in range(100)]
    assert max(found) < TILES[-1]
    begins = {tiled(Random(number), Region("beyond", 1, 9)).number for number in range(100)}
    assert begins == {1, 2, 4, 8}
    assert tiled(Random(0), Region("last", -1)) == Region("last", -1)


def test_few_candidates_are_wide() -> None:
    alike = population(*[CONVOLUTION] * 10)
    kept = [candidate(alike, "fbgemm", "x86", 0, number) for number in range(300)]
    assert 10 < sum(one is not None for one in kept) < 60


def test_effects_on_arguments_need_the_arguments() -> None:
    assert changeable("the bias is dropped", CONVOLUTION)
    assert not changeable("the bias is dropped", RELU)
    assert not changeable("the neighbour's weight scale", CONVOLUTION)
    assert not changeable("the second operand is dropped", CONVOLUTION)


def test_a_title_says_what_a_mutant_does() -> None:
    conditions = (Condition("stride", "==", "3x3"), Condition("groups", ">=", 2), Condition("products", "%", 1, 4))
    mutant = Mutant("fbgemm", "x86", 17, "quantized.conv2d", conditions, Region("last", -1), Effect("one step less"))
    assert mutant.id == "x86/17"
    assert mutant.title == (
        "quantized.conv2d: one step less at the last index of dimension -1, where stride is 3x3 and groups is at least 2 and "
        "products % 4 is 1"
    )
    moved = Mutant(
        "", "", 0, "aten.cat", (), Region("tail", width=8), Effect("the neighbour's value along dimension {axis}", 1)
    )
    assert moved.title == "aten.cat: the neighbour's value along dimension 1 after the last whole vector of 8 elements"


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (Condition("groups", "==", 3), True),
        (Condition("groups", ">=", 4), False),
        (Condition("groups", "<=", 3), True),
        (Condition("qx size(1)", "%", 0, 4), True),
        (Condition("qx size(1)", "%", 1, 4), False),
        (Condition("stride", "==", "1x2"), True),
        (Condition("stride", ">=", 1), False),
        (Condition("alpha", "==", 1), False),
    ],
)
def test_conditions(condition: Condition, holds: bool) -> None:
    assert condition.holds(FACTS) is holds
