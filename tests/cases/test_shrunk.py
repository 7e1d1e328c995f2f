"""Layers in use shrunk: the committed table is that of the command, and a shrunk layer keeps what kernels branch on."""

import math
from collections import Counter
from functools import cache
from itertools import cycle

import pytest

from conformance.cases.in_use import Unwritable, as_produced, value_of, variant_of
from conformance.cases.representative import UNCERTAIN, elements, multiplications, root, weights
from conformance.cases.shrunk import (
    BLOCK,
    LEVELS,
    WIDEST,
    affordable,
    identity,
    least,
    selected,
    shrunk,
    with_rare_traits,
)
from conformance.results.in_use import REPRESENTATIVE, SHRUNK, LayerInUse, read


@cache
def every_layer() -> list[LayerInUse]:
    return read()


@cache
def committed() -> list[LayerInUse]:
    return read(SHRUNK)


def run() -> list[LayerInUse]:
    """The layers of the committed selection that have runs of their own."""
    return [one for one in committed() if one.variant and not one.run_as]


@cache
def written() -> list[tuple[LayerInUse, LayerInUse]]:
    """Every layer that can be written, and what it is shrunk to."""
    found = []
    for one in every_layer():
        try:
            found.append((one, shrunk(one)))
        except Unwritable:
            continue
    return found


def layer(pattern: str, *inputs: str, producers: tuple[str, ...] = (), **options: str) -> LayerInUse:
    return LayerInUse(pattern, options, inputs, True, producers, consumers=(), networks={"network": 1})


def convolution(
    pattern: str = "nn.Conv2d", image: str = "8x8", channels: tuple[int, int] = (3, 5), **options: str
) -> LayerInUse:
    stated = {"kernel_size": "3x3", "stride": "1x1", "padding": "1x1", "dilation": "1x1", "groups": "1", "bias": "None"}
    counts = {"in_channels": str(channels[0]), "out_channels": str(channels[1])}
    inputs = (f"2x{channels[0]}x{image}",)
    return LayerInUse(pattern, {**stated, **counts, **options}, inputs, True, (), (), networks={"network": 1})


def test_the_committed_selection_is_that_of_the_command() -> None:
    assert committed() == selected(every_layer())


def test_every_layer_that_can_be_written_is_represented() -> None:
    assert {identity(small) for _, small in written()} == {identity(one) for one in run()}
    having = [one for one in committed() if one.variant]
    assert sum(one.occurrences for one in having) == sum(one.occurrences for one, _ in written())
    assert {(one.run_as, one.variant) for one in having if one.run_as} <= {(one.pattern, one.variant) for one in run()}


def test_no_layer_is_lost() -> None:
    """Those that cannot be written are counted by pattern, and have nothing that is run."""
    networks = sum((Counter(one.networks) for one in every_layer()), Counter[str]())
    assert sum((Counter(one.networks) for one in committed()), Counter[str]()) == networks
    assert len(networks) == 140
    unwritable = [one for one in committed() if not one.variant]
    assert len({one.pattern for one in unwritable}) == len(unwritable) > 10
    assert not any(one.representative for one in unwritable)


def test_the_representative_of_a_layer_is_the_nearest() -> None:
    chosen = {(one.pattern, variant_of(one).name) for one in read(REPRESENTATIVE)}
    assert {one.representative for one in run() if one.representative} <= chosen
    same = [one for one in run() if one.representative and one.pattern == one.representative[0]]
    assert sum(one.occurrences for one in same) > 0.9 * sum(one.occurrences for one in run())


def test_every_pattern_is_among_them() -> None:
    assert {one.pattern for one, _ in written()} == {one.pattern for one in run()}


def test_a_layer_that_is_beyond_the_bounds_at_every_level_is_as_small_as_it_gets() -> None:
    beyond = [one for one in run() if not affordable(one)]
    assert len(beyond) < 5
    assert all(max(map(int, "x".join(one.inputs).split("x"))) < BLOCK + 2 * LEVELS[-1].channels for one in beyond)


@pytest.mark.parametrize("modulus", [4, 8, 16, 32, 64])
def test_a_size_keeps_its_remainder_and_what_it_is_beyond(modulus: int) -> None:
    for size in range(1, 700):
        small = least(size, modulus, 9, 256)
        assert small <= size
        assert small % modulus == size % modulus
        for bound in (modulus, 9, 256):
            assert (small > bound) == (size > bound)
        assert small <= 256 + modulus


def test_channels_keep_their_remainders_by_every_tile() -> None:
    kept = 0
    for one, small in written():
        for name in ("in_channels", "out_channels", "in_features", "out_features"):
            if name in one.options and small.options.get("groups", "1") == one.options.get("groups", "1") == "1":
                before, after = int(one.options[name]), int(small.options[name])
                assert before % 4 == after % 4
                kept += before % WIDEST == after % WIDEST
    assert kept > 3000


def test_options_stay_but_for_counts_of_channels() -> None:
    counts = {"in_channels", "out_channels", "groups", "in_features", "out_features", "num_features"}
    counts |= {"normalized_shape", "num_embeddings", "embedding_dim"}
    for one, small in written():
        same = {name for name in one.options if one.options[name] == small.options[name]}
        assert one.options.keys() - counts - ({"arg1"} if "layer_norm" in root(one) else set()) <= same


def test_a_depthwise_convolution_stays_one_and_an_image_is_no_smaller_than_its_kernel() -> None:
    depthwise = shrunk(convolution(channels=(960, 960), groups="960"))
    assert depthwise.options["groups"] == depthwise.options["in_channels"] == depthwise.options["out_channels"] == "128"
    wide = shrunk(convolution(image="900x900", kernel_size="32x32", padding="0x0"))
    assert min(map(int, wide.inputs[0].split("x")[2:])) >= 32


def test_sums_stay_beyond_a_block_of_the_cache() -> None:
    wide = shrunk(layer("nn.Linear", "2x2048", in_features="2048", out_features="1000", bias="True"))
    assert wide.inputs == ("2x320",)
    assert (wide.options["in_features"], wide.options["out_features"]) == ("320", "104")


def test_recurrent_layers_are_left_out() -> None:
    assert UNCERTAIN & {root(one) for one in every_layer()}
    assert not UNCERTAIN & {root(one) for one in run()}


def test_a_trait_that_few_layers_have_makes_them_rare() -> None:
    same = [convolution(image="9x8", padding=padding) for padding in ("1x1", "1x1", "1x1")]
    odd = convolution(image="9x8", stride="3x1")
    turns = {id(layer): profile for layer, profile in zip([*same, odd], cycle(["in_use", "trained"]), strict=False)}

    def profile_of(layer: LayerInUse) -> str:
        return turns[id(layer)]

    assert with_rare_traits([*same, odd], profile_of) == [odd]
    assert with_rare_traits([*same[:1], odd], profile_of) == [*same[:1], odd]
    assert with_rare_traits([*same, odd], lambda layer: "in_use") == [*same, odd]


def test_what_computes_the_same_is_one() -> None:
    one, other = convolution(), convolution("nn.Conv2d+nn.BatchNorm2d")
    alone, fused = convolution(image="16x16"), convolution("nn.Conv2d+nn.BatchNorm2d", "16x16")
    found = selected([one, other, alone, fused])
    # the first of each pattern stays
    assert [(layer.pattern, layer.inputs, layer.run_as) for layer in found] == [
        ("nn.Conv2d", ("2x3x8x8",), ""),
        ("nn.Conv2d+nn.BatchNorm2d", ("2x3x8x8",), ""),
        ("nn.Conv2d", ("2x3x16x16",), ""),
        ("nn.Conv2d+nn.BatchNorm2d", ("2x3x16x16",), "nn.Conv2d"),
    ]
    assert found[3].variant == found[2].variant
    assert [layer.occurrences for layer in selected([one, one, other])] == [2, 1]
    assert len(selected([one, convolution("nn.Conv2d+nn.ReLU")])) == 2


def test_layers_that_differ_in_their_producers_alone_differ_in_their_memory_format() -> None:
    first = layer("nn.MaxPool2d", "2x8x9x9", kernel_size="3", stride="2")
    behind = layer("nn.MaxPool2d", "2x8x9x9", producers=("nn.Conv2d+nn.ReLU",), kernel_size="3", stride="2")
    rows = layer("nn.MaxPool2d", "2x8x9x9", producers=("nn.Linear",), kernel_size="3", stride="2")
    assert len(selected([first, behind, rows])) == 2
    assert [as_produced(one).operands["x"].layout for one in (first, behind, rows)] == [
        "contiguous",
        "channels_last",
        "contiguous",
    ]


def test_of_operators_that_treat_all_elements_alike_the_number_of_elements_counts() -> None:
    assert len(selected([layer("nn.ReLU", "2x6x4x4"), layer("nn.ReLU", "2x3x8x4")])) == 1
    assert len(selected([layer("nn.ReLU", "2x6x4x4"), layer("nn.ReLU", "2x6x4x5")])) == 2


@pytest.mark.parametrize(
    ("one", "count"),
    [
        (layer("nn.Linear", "2x3x8", in_features="8", out_features="5", bias="True"), 2 * 3 * 8 * 5),
        (convolution(image="6x6", channels=(8, 4), groups="2", padding="0x0"), 2 * 4 * 4 * 4 * 9 * 4),
        (
            convolution("nn.ConvTranspose2d", "6x6", (8, 4), kernel_size="2x2", stride="2x2", padding="0x0"),
            2 * 6 * 6 * 8 * 4 * 4,
        ),
        (layer("operator.add", "2x8x6x6", "2x8x1x1"), 2 * 8 * 36 + 16),
    ],
    ids=["linear", "convolution", "transposed", "addition"],
)
def test_the_cost_of_a_layer_is_its_number_of_multiplications(one: LayerInUse, count: int) -> None:
    assert multiplications(one) == count


def test_the_cost_of_its_weights_is_their_number() -> None:
    assert weights(convolution(channels=(8, 4), groups="2")) == 8 * 4 // 2 * 9
    assert weights(layer("nn.Embedding", "2x3", num_embeddings="100", embedding_dim="8")) == 800
    assert elements(layer("operator.add", "2x8x6x6", "2x8x1x1")) == math.prod((2, 8, 6, 6)) + 16
    assert value_of("3x3") == (3, 3)
