"""Points of covering arrays are filled with drawn values, within the constraints of their spaces."""

import pytest

from conformance.cases.claims import backend
from conformance.cases.combined import combined, filled, points
from conformance.cases.operators import OPERATORS
from conformance.cases.ranges import bounds
from conformance.cases.spaces import SPACES
from conformance.cases.spaces.arrays import arrays
from conformance.cases.spaces.space import JOINT


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
