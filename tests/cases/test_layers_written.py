"""Layers in use are written as variants with the options and shapes of the layer."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conformance.cases.claims import backend
from conformance.cases.in_use import Unwritable, value_of, variant_of
from conformance.cases.operators import Variant
from conformance.cases.operators.record import WIDE_INPUT
from conformance.cases.sources import written
from conformance.configs.registry import BACKENDS
from conformance.results.in_use import LayerInUse, read

WITHOUT_WEIGHT = "the table does not record the shape of a function's weight"


@cache
def layers() -> list[LayerInUse]:
    return read()


def layer(pattern: str, *inputs: str, producers: tuple[str, ...] = ("nn.ReLU",), **options: str) -> LayerInUse:
    return LayerInUse(pattern, options, inputs, claim=True, producers=producers, consumers=(), networks={"network": 1})


def reason(one: LayerInUse) -> str:
    """Why a layer cannot be written; empty if it can."""
    try:
        variant_of(one)
    except Unwritable as error:
        return str(error)
    return ""


def test_every_layer_of_an_operator_with_claims_is_written_unless_the_table_lacks_what_it_takes() -> None:
    lacking = Counter(
        (one.pattern, why) for one in layers() if (why := reason(one)) and why != "no claim has the operator"
    )
    assert lacking == {
        ("F.conv2d", WITHOUT_WEIGHT): 110,
        ("F.conv3d", WITHOUT_WEIGHT): 21,
        ("F.linear", WITHOUT_WEIGHT): 5,
        ("F.interpolate", "the size of the result comes from another tensor, which the table does not record"): 39,
        ("F.pad", "the table does not record the sizes, which are computed"): 1,
    }


def test_a_layer_that_a_claim_covers_has_an_operator() -> None:
    assert [one for one in layers() if one.claim and reason(one) == "no claim has the operator"] == []


def variants() -> dict[tuple[str, str], Variant]:
    """Variants by pattern and name."""
    return {(one.pattern, found.name): found for one in layers() if not reason(one) for found in [variant_of(one)]}


def test_different_layers_of_a_pattern_have_different_names() -> None:
    named = variants()
    assert len(named) > 4000
    for one in layers():
        if not reason(one):
            assert named[one.pattern, variant_of(one).name] == variant_of(one)


def test_every_layer_runs_in_float_and_has_the_shape_that_it_states() -> None:
    trees = {claim.pattern: claim.tree for name in BACKENDS for claim in backend(name).claims}
    for (pattern, _), variant in variants().items():
        model = written(trees[pattern], variant)
        names = {"nn": nn, "F": F, "torch": torch}
        exec(model.source, names)
        with torch.device("meta"):
            indices = {name for name, spec in model.operands if spec.kind == "indices"}
            inputs = [
                torch.zeros(spec.shape, dtype=torch.int64 if name in indices else None) for name, spec in model.operands
            ]
            result = names["Model"]().eval()(*inputs)  # type: ignore[operator]
        assert not variant.output or not isinstance(result, torch.Tensor) or result.shape == variant.output


@pytest.mark.parametrize(
    ("one", "name", "init", "call"),
    [
        (
            layer(
                "nn.Conv2d", "2x128x12x10", in_channels="128", out_channels="64", kernel_size="1x7", stride="2x2",
                padding="0x3", dilation="1x1", groups="4", bias="None", padding_mode="zeros", output_padding="0x0",
            ),
            "128to64_12x10_k1x7_s2_p0x3_g4_no_bias",
            "nn.Conv2d(128, 64, (1, 7), stride=2, padding=(0, 3), groups=4, bias=False)",
            "self.op(x)",
        ),
        (
            layer("nn.Linear+nn.ReLU", "2x49x768", in_features="768", out_features="3072", bias="True"),
            "768to3072_rows_2x49",
            "nn.Linear(768, 3072)",
            "self.op(x)",
        ),
        (
            layer("nn.MaxPool2d", "2x64x32x32", kernel_size="3", stride="2", padding="1", dilation="1", ceil_mode="True"),
            "2x64x32x32_k3_ceil_mode_p1_s2",
            "nn.MaxPool2d(3, ceil_mode=True, padding=1, stride=2)",
            "self.op(x)",
        ),
        (layer("operator.mul", "2x8x4x4", arg0="0.5"), "2x8x4x4_scalar_left_0.5", "", "0.5 * x"),
        (layer("operator.add", "2x8x4x4"), "2x8x4x4_same_tensor", "", "x + x"),
        (layer("torch.cat", "2x8x4x4", "2x3x4x4", arg1="1"), "2x8x4x4_and_2x3x4x4_1", "", "torch.cat([x, y], 1)"),
        (
            layer("Tensor.mean", "2x8x4x4", arg1="2x3", keepdim="True"),
            "2x8x4x4_2x3_keepdim",
            "",
            "x.mean((2, 3), keepdim=True)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else None,
)  # fmt: skip
def test_a_variant_has_the_options_of_the_layer_and_a_name_made_of_them(
    one: LayerInUse, name: str, init: str, call: str
) -> None:
    variant = variant_of(one)
    assert (variant.name, variant.init, variant.call) == (name, init, call)


def test_a_convolution_before_a_batch_norm_has_no_bias() -> None:
    plain = layer("nn.Conv1d", "2x4x6", in_channels="4", out_channels="4", kernel_size="1", bias="True")
    assert variant_of(plain).init == "nn.Conv1d(4, 4, 1)"
    assert variant_of(replace(plain, pattern="nn.Conv1d+nn.BatchNorm1d")).init == "nn.Conv1d(4, 4, 1, bias=False)"


def test_a_function_with_fixed_qparams_follows_another_operator_where_the_layer_does() -> None:
    inside, first = variant_of(layer("nn.Sigmoid", "2x4")), variant_of(layer("nn.Sigmoid", "2x4", producers=()))
    assert (inside.prelude, inside.data) == (WIDE_INPUT, "full")
    assert (first.prelude, first.data) == ("", "unit")


@pytest.mark.parametrize(
    ("text", "value"), [("3x3", (3, 3)), ("-1x-2", (-1, -2)), ("1e-06", 1e-06), ("None", None), ("same", "same")]
)
def test_options_are_read_from_their_text(text: str, value: object) -> None:
    assert value_of(text) == value


def test_a_layer_without_a_shape_is_not_written() -> None:
    assert reason(layer("nn.ReLU")) == "the table has no shape of an input"
