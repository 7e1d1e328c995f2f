"""Points of covering arrays are filled with drawn values, within the constraints of their spaces."""

import math

import pytest

from conformance.cases.claims import backend
from conformance.cases.combined import (
    EXECUTIONS,
    LEAST,
    combined,
    drawn_point,
    filled,
    further_inputs,
    points,
)
from conformance.cases.operators import OPERATORS, SPACES
from conformance.cases.operators.arrays import arrays
from conformance.cases.operators.space import JOINT
from conformance.cases.ranges import bounds
from conformance.configs.spelling import computation


def names(operator: str) -> list[str]:
    return [name for name in arrays()[operator] if JOINT in name]


def test_a_filled_point_keeps_the_values_that_its_name_states() -> None:
    for name in names("nn.Conv2d"):
        if "stride_2" in name.split(JOINT):
            assert "stride=2" in filled("nn.Conv2d", name).init
        if "no_bias" in name.split(JOINT):
            assert "bias=False" in filled("nn.Conv2d", name).init


def test_a_point_is_filled_in_the_same_way_every_time() -> None:
    (name, *_) = names("nn.Conv2d")
    assert filled("nn.Conv2d", name) == filled("nn.Conv2d", name)


@pytest.mark.parametrize("operator", ["nn.Conv2d", "nn.Linear", "operator.add", "nn.AvgPool3d"])
def test_some_values_are_drawn(operator: str) -> None:
    space = SPACES[operator]
    assert any(filled(operator, name) != space.at(name) for name in names(operator))


def test_a_single_value_is_tried_with_defaults() -> None:
    space, fixed = SPACES["nn.Conv2d"], {variant.name for variant in OPERATORS["nn.Conv2d"]}
    for variant in points("nn.Conv2d"):
        if JOINT not in variant.name and variant.name not in fixed:
            assert variant == space.at(variant.name)


def test_zero_points_are_inside_of_the_codes_and_differ() -> None:
    found = {variant.data for _, variant in combined(backend("fbgemm")) if variant.data[0].isdigit()}
    assert len(found) > 200
    for data in found:
        for steps in (127, 255):
            low, high, exponent = bounds(data, steps)
            assert low < 0 < high
            assert -13 <= exponent <= 2


def test_operators_with_few_points_get_drawn_ones_that_differ_from_all_others() -> None:
    found, fixed = points("nn.LSTMCell"), OPERATORS["nn.LSTMCell"]
    drawn = {repr(variant.named("")) for variant in found if variant.name.startswith("drawn_")}
    others = {repr(variant.named("")) for variant in (*found, *fixed) if not variant.name.startswith("drawn_")}
    assert len(drawn) > 2
    assert drawn.isdisjoint(others)


def test_operators_with_enough_points_draw_none() -> None:
    for operator in ("nn.Linear", "F.interpolate", "nn.Conv1d"):
        assert not [variant for variant in points(operator) if variant.name.startswith("drawn_")]


def test_one_operator_of_a_name_has_its_drawn_points() -> None:
    having = {operator for operator in SPACES if any(v.name.startswith("drawn_") for v in points(operator))}
    names_of = [computation(operator) for operator in having]
    assert len(names_of) == len({*names_of}) > 2


def test_a_drawn_point_is_a_function_of_its_number() -> None:
    assert drawn_point("nn.AvgPool3d", 3) == drawn_point("nn.AvgPool3d", 3)
    assert len({repr(drawn_point("nn.AvgPool3d", number).named("")) for number in range(10)}) > 7


def test_models_have_the_more_further_inputs_the_fewer_points_their_operator_has() -> None:
    assert 1 <= further_inputs("F.interpolate") < further_inputs("nn.LSTMCell")
    assert further_inputs("nn.LSTMCell") == math.ceil(EXECUTIONS / LEAST)


def test_boundary_values_are_tried_with_one_operator_of_each_name() -> None:
    tried = {operator: {variant.name for variant in points(operator)} for operator in SPACES}
    for operator in ("nn.BatchNorm2d", "nn.BatchNorm3d"):
        inits = {variant.init for variant in (*points(operator), *OPERATORS[operator])}
        for eps in ("eps=0.5", "eps=0.125"):
            assert any(init.endswith(f"(4, {eps})") for init in inits)
    assert "kernel_size_4" in tried["nn.Conv3d"] - tried["F.conv3d"]


def test_the_first_claims_of_kernels_that_compute_two_operators_have_whole_arrays() -> None:
    of_pattern: dict[str, int] = {}
    for claim, variant in combined(backend("onednn")):
        if claim.id.endswith("static-quint8") and not variant.followers:
            of_pattern[claim.pattern] = of_pattern.get(claim.pattern, 0) + 1
    alone = of_pattern["nn.Linear"]
    for pattern in ("nn.Linear+nn.ReLU", "nn.Linear+nn.LeakyReLU", "nn.Linear+nn.Tanh"):
        # the layer alone has more fixed variants, for which it needs no row: an empty batch of strided inputs, and images
        assert alone * 2 // 3 < of_pattern[pattern] <= alone + 2
    assert of_pattern["nn.Linear+F.relu"] == of_pattern["nni.LinearReLU"] == 2


def test_kernels_that_compute_two_operators_get_the_fixed_variants_of_the_first() -> None:
    patterns: dict[str, set[str]] = {}
    for claim, variant in combined(backend("fbgemm")):
        patterns.setdefault(claim.pattern, set()).add(variant.name)
    fixed = {variant.name for variant in OPERATORS["nn.Conv2d"] if not variant.core}
    assert {"wide", "asymmetric"} <= fixed & patterns["nn.Conv2d+nn.ReLU"]
    assert not {"wide", "asymmetric"} & patterns["nn.Conv2d"]  # which has them in the profile `exact`
