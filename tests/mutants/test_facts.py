"""Facts of calls: sizes, options, formats and qparams by name."""

import pytest
import torch
from faults.kernels import Call
from torch import Tensor

from .facts import exponent, facts_of, layout


def quantized(*shape: int, scale: float = 0.5, zero_point: int = 3) -> Tensor:
    return torch._make_per_tensor_quantized_tensor(torch.zeros(shape, dtype=torch.uint8), scale, zero_point)


def packed(per_channel: bool, bias: bool) -> object:
    codes = torch.ones(6, 2, 1, 3, dtype=torch.int8)
    if per_channel:
        scales, zero_points = torch.tensor([0.5, 2.0, 1.0, 1.0, 1.0, 1.0]).double(), torch.zeros(6, dtype=torch.int64)
        weight = torch._make_per_channel_quantized_tensor(codes, scales, zero_points, 0)
    else:
        weight = torch._make_per_tensor_quantized_tensor(codes, 0.25, 0)
    options = [1, 2], [0, 1], [1, 1], 3
    return torch.ops.quantized.conv2d_prepack(weight, torch.zeros(6) if bias else None, *options)


@pytest.mark.parametrize("per_channel", [True, False])
def test_facts_of_a_convolution(per_channel: bool) -> None:
    schema = torch.ops.quantized.conv2d.new._schema
    arguments = {
        "qx": quantized(2, 6, 4, 5),
        "packed_weight": packed(per_channel, bias=True),
        "output_scale": 4.0,
        "output_zero_point": 7,
    }
    facts = facts_of(Call(schema, arguments, lambda: None), 2)
    expected = {
        "call": 2,
        "qx rank": 4,
        "qx size(0)": 2,
        "qx size(1)": 6,
        "qx size(-1)": 5,
        "qx image": 20,
        "qx elements": 240,
        "qx format": "contiguous",
        "qx zero point": 3,
        "qx scale exponent": -1,
        "stride": "1x2",
        "padding": "0x1",
        "groups": 3,
        "output channels": 6,
        "input channels": 2,
        "kernel_size": "1x3",
        "products": 6,
        "bias": True,
        "per channel": per_channel,
        "output_zero_point": 7,
        "output_scale exponent": 2,
        "multiplier exponent": -2 if per_channel else -5,
    }
    assert {name: facts.get(name) for name in expected} == expected
    assert facts.get("weight scale ratio exponent") == (2 if per_channel else None)


def test_facts_of_two_operands_and_of_lists() -> None:
    schema = torch.ops.quantized.add.default._schema
    arguments = {"qa": quantized(2, 3), "qb": quantized(1, 3, scale=0.25), "scale": 1.0, "zero_point": 0}
    assert facts_of(Call(schema, arguments, lambda: None), 1)["scale ratio exponent"] == 1
    schema = torch.ops.aten.cat.default._schema
    facts = facts_of(Call(schema, {"tensors": [quantized(2, 3)] * 3, "dim": 1}, lambda: None), 1)
    assert (facts["tensors length"], facts["tensors[1] size(1)"], facts["dim"]) == (3, 3, 1)


def test_the_facts_of_a_layer_without_bias_say_so() -> None:
    arguments = {"qx": quantized(1, 6, 4, 5), "packed_weight": packed(True, bias=False)}
    schema = torch.ops.quantized.conv2d.new._schema
    assert facts_of(Call(schema, arguments, lambda: None), 1)["bias"] is False


def test_facts_leave_no_trace() -> None:
    """A transposed convolution converts its weight to float and back when it is unpacked."""
    weight = torch._make_per_tensor_quantized_tensor(torch.ones(2, 2, 1, 1, 1, dtype=torch.int8), 0.5, 0)
    one, none = [1, 1, 1], [0, 0, 0]
    layer = torch.ops.quantized.conv_transpose3d_prepack(weight, None, one, none, none, one, 1)
    call = Call(torch.ops.quantized.conv_transpose3d.default._schema, {"packed_weight": layer}, lambda: None)
    with torch.autograd.profiler.profile() as profile:
        facts = facts_of(call, 1)
    assert facts["products"] == 2
    assert profile.kineto_results is not None
    assert not [event.name() for event in profile.kineto_results.events() if "quantize" in event.name()]


@pytest.mark.parametrize(("scale", "expected"), [(1.0, 0), (0.75, -1), (2.0**-10, -10), (0.0, -1000)])
def test_exponents(scale: float, expected: int) -> None:
    assert exponent(scale) == expected


def test_layouts() -> None:
    image = torch.zeros(2, 3, 4, 5)
    assert layout(image) == "contiguous"
    assert layout(image.contiguous(memory_format=torch.channels_last)) == "channels_last"
    assert layout(image[..., ::2]) == "strided"
