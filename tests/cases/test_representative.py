"""The committed selection of layers in use: it is that of the command, within its bounds, and has every feature."""

from functools import cache

import pytest

from conformance.cases.in_use import Unwritable, variant_of
from conformance.cases.representative import (
    MOST_ELEMENTS,
    MOST_MULTIPLICATIONS,
    MOST_WEIGHTS,
    UNCERTAIN,
    affordable,
    elements,
    features,
    multiplications,
    root,
    selected,
    weights,
)
from conformance.configs.spelling import computation
from conformance.results.in_use import REPRESENTATIVE, LayerInUse, read


@cache
def every_layer() -> list[LayerInUse]:
    return read()


@cache
def committed() -> list[LayerInUse]:
    return read(REPRESENTATIVE)


def writable(layer: LayerInUse) -> bool:
    try:
        variant_of(layer)
    except Unwritable:
        return False
    return True


def layer(pattern: str, *inputs: str, **options: str) -> LayerInUse:
    return LayerInUse(pattern, options, inputs, claim=True, producers=(), consumers=(), networks={"network": 1})


def test_the_committed_selection_is_that_of_the_command() -> None:
    assert committed() == selected(every_layer())


def candidates() -> list[LayerInUse]:
    return [one for one in every_layer() if writable(one) and affordable(one) and root(one) not in UNCERTAIN]


def test_every_feature_of_a_computation_that_a_layer_within_the_bounds_has_is_selected() -> None:
    having = {(computation(root(one)), feature) for one in committed() for feature in features(one)}
    assert {(computation(root(one)), feature) for one in candidates() for feature in features(one)} == having


def test_the_most_frequent_layer_of_every_pattern_is_selected() -> None:
    first = {one.pattern: one for one in reversed(candidates())}
    assert all(one in committed() for one in first.values())


def test_no_layer_could_be_left_out() -> None:
    first = {one.pattern: one for one in reversed(candidates())}
    for one in committed():
        if first[one.pattern] != one:
            same = [other for other in committed() if computation(root(other)) == computation(root(one))]
            others = (features(other) for other in same if other != one)
            assert not features(one) <= frozenset().union(*others)


@pytest.mark.parametrize(
    ("one", "count"),
    [
        (layer("nn.Linear", "2x3x8", in_features="8", out_features="5", bias="True"), 2 * 3 * 8 * 5),
        (
            layer("nn.Conv2d", "2x8x6x6", in_channels="8", out_channels="4", kernel_size="3x3", groups="2", bias="True"),
            2 * 4 * 4 * 4 * 9 * 4,
        ),
        (
            layer(
                "nn.ConvTranspose2d", "2x8x6x6", in_channels="8", out_channels="4", kernel_size="2x2", groups="1",
                stride="2x2", bias="True",
            ),
            2 * 6 * 6 * 8 * 4 * 4,
        ),
        (layer("operator.add", "2x8x6x6", "2x8x1x1"), 2 * 8 * 36 + 16),
    ],
    ids=["linear", "convolution", "transposed", "addition"],
)  # fmt: skip
def test_the_cost_of_a_layer_is_its_number_of_multiplications(one: LayerInUse, count: int) -> None:
    assert multiplications(one) == count


def test_layers_beyond_a_bound_are_left_out() -> None:
    wide = layer("nn.Linear", "2x1024", in_features="1024", out_features="512", bias="True")
    assert weights(wide) > MOST_WEIGHTS
    deep = layer(
        "nn.Conv2d", "2x64x96x96", in_channels="64", out_channels="64", kernel_size="1x1", groups="1", bias="None"
    )
    assert multiplications(deep) > MOST_MULTIPLICATIONS
    large = layer("nn.ReLU", "2x64x96x96")
    assert elements(large) > MOST_ELEMENTS
    assert selected([wide, deep, large]) == []


def test_layers_that_differ_in_their_neighbours_alone_are_one() -> None:
    one, other = layer("nn.ReLU", "2x64x9x9"), layer("nn.ReLU", "2x64x9x9")
    assert selected([one, other]) == [one]


def test_sizes_are_covered_by_octave_and_by_vector() -> None:
    found = features(layer("nn.Linear", "6x24", in_features="24", out_features="7", bias="True"))
    assert {("octave of in_features", 5), ("vector of in_features", 8), ("vector of out_features", 1)} <= found
