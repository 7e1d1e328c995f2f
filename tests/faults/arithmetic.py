"""Faults in the arithmetic of a layer: rounding, saturation, bias, zero points and scales."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .fault import Fault, case
from .kernels import Call, Kernel, Requantization, added, at, codes, kernel_faults, quantized

LINEAR = case("nn.Linear")
LINEAR_RELU = case("nn.Linear+nn.ReLU")
TYPICAL = case("nn.Linear", profile="typical", backend="qnnpack")
WIDE = case("nn.Linear", "wide")
FULL = case("nn.Linear", backend="qnnpack")
"""A run whose activations have 8 bits; those of fbgemm have 7."""
SYMMETRIC = case("nn.MaxPool2d", dtypes="static-qint8", backend="qnnpack")
CONV = case("nn.Conv2d")
RELU = case("nn.ReLU")
ADD = case("torch.add")
BEYOND = case("nn.Linear", "saturates", backend="qnnpack")
CENTRED = case("nn.Linear+nn.ReLU", "symmetric")
BATCHES = (case("nn.Linear", "batch5", backend="qnnpack"), case("nn.Linear", "wide", backend="qnnpack"))


def with_weights(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]) -> Kernel:
    """A linear layer with changed weight codes (int32) and a changed bias; the weight is per tensor."""

    def kernel(call: Call) -> Any:
        weight, bias = call["W_prepack"].unpack()
        changed, bias = change(weight.int_repr().int(), bias.clone())
        packed = torch.ops.quantized.linear_prepack(quantized(changed, weight), bias)
        return call.original(W_prepack=packed)

    return kernel


def with_bias(change: Callable[[Tensor], Tensor | None]) -> Kernel:
    return with_weights(lambda weight, bias: (weight, change(bias)))


def with_rows(change: Callable[[Tensor], Tensor]) -> Kernel:
    return with_weights(lambda weight, bias: (change(weight), bias))


def with_input(
    scale: Callable[[float], float] = lambda scale: scale,
    zero_point: Callable[[int], int] = lambda zero_point: zero_point,
) -> Kernel:
    """A kernel that reads the codes of its first argument with changed qparams."""

    def kernel(call: Call) -> Any:
        x = call.x
        relabelled = quantized(x.int_repr(), x, scale(x.q_scale()), zero_point(x.q_zero_point()))
        return call.original(**{call.names[0]: relabelled})

    return kernel


def with_output(change: Callable[[float, int], tuple[float, int]], *, labelled: bool) -> Kernel:
    """A layer that requantizes with changed qparams. If `labelled`, its output carries them too."""

    def kernel(call: Call) -> Tensor:
        original = call["Y_scale_i"], call["Y_zero_point_i"]
        scale, zero_point = change(*original)
        result: Tensor = call.original(Y_scale_i=scale, Y_zero_point_i=zero_point)
        return result if labelled else quantized(result.int_repr(), result, *original)

    return kernel


def relu_at(code: int) -> Kernel:
    """ReLU that clamps at the zero point plus `code`, computed from the layer without ReLU."""

    def kernel(call: Call) -> Tensor:
        result: Tensor = call.by(torch.ops.quantized.linear)
        return quantized(result.int_repr().int().clamp(min=result.q_zero_point() + code), result)

    return kernel


def saturating_pairs(call: Call) -> Tensor:
    """The arithmetic of vpmaddubsw: products of unsigned and signed bytes are added in pairs that saturate at 16 bits."""
    x, (weight, bias) = call["X"], call["W_prepack"].unpack()
    signed = weight.int_repr().double()
    products = x.int_repr().double().unsqueeze(1) * signed
    pairs = products.unflatten(-1, (-1, 2)).sum(-1).clamp(-(2**15), 2**15 - 1)
    accumulator = pairs.sum(-1) - x.q_zero_point() * signed.sum(1)
    accumulator += (bias.double() / (x.q_scale() * weight.q_scale())).round()
    position = accumulator * (x.q_scale() * weight.q_scale() / call["Y_scale_i"]) + call["Y_zero_point_i"]
    return quantized(position.round().clamp(0, 255), x, call["Y_scale_i"], call["Y_zero_point_i"])


def mantissa(bits: int) -> Callable[[Tensor, float], Tensor]:
    """Multiply by a multiplier that is rounded to a number of bits."""

    def multiplied(accumulator: Tensor, multiplier: float) -> Tensor:
        part, exponent = torch.frexp(torch.tensor(multiplier, dtype=torch.float64))
        return accumulator * torch.ldexp(torch.floor(torch.ldexp(part, torch.tensor(bits))), exponent - bits)

    return multiplied


fault = kernel_faults("arithmetic", LINEAR)


def requantized(name: str, caught: str, *runs: str, survives: str = "", **steps: Any) -> Fault:
    return fault(name, caught, "quantized.linear", Requantization(**steps), *runs, survives=survives)


L, R = "quantized.linear", "quantized.linear_relu"

FAULTS = [
    # codes of a result
    fault("the first code is one up", "numerics", L, added(1, at((0, 0)))),
    fault("the last code is one down", "numerics", L, added(-1, at((-1, -1)))),
    fault("one code of 896 is one up", "numerics", "quantized.conv2d", added(1, at((1, 3, 2, 1))), CONV),
    fault(
        "one code is 100 off",
        "accuracy numerics",
        L,
        codes(lambda c: c.index_put((torch.tensor(0), torch.tensor(3)), c[0, 3] ^ 64)),
    ),
    fault("every code is one up", "numerics", L, added(1, at(...))),
    fault("every code is one down", "accuracy numerics", L, added(-1, at(...)), FULL),
    fault("the last channel is one up", "numerics", "quantized.conv2d", added(1, at((slice(None), -1))), CONV),
    fault("the last row of a batch is one up", "numerics", L, added(1, at(-1))),
    fault(
        "elements after the last whole vector are one up",
        "numerics",
        "quantized.add",
        added(1, lambda c: at(slice(256, None))(c.flatten()).reshape(c.shape)),
        ADD,
    ),
    fault("every sixteenth column is one up", "numerics", L, added(1, at((slice(None), slice(15, None, 16)))), WIDE),
    fault("codes above 100 are one up", "numerics", L, added(1, lambda c: c > 100), WIDE, FULL),
    fault("the code of zero is one up", "numerics", "aten.relu", added(1, lambda c: c == c.min()), RELU),
    fault("a sign bit is lost", "accuracy numerics", "aten.quantized_max_pool2d", codes(lambda c: c & 127), SYMMETRIC),
    # rounding
    requantized(
        "codes are truncated", "numerics", rounded=lambda position, zero_point: torch.trunc(position + zero_point)
    ),
    requantized(
        "codes are rounded down", "numerics", rounded=lambda position, zero_point: torch.floor(position) + zero_point
    ),
    requantized(
        "codes are rounded up", "numerics", rounded=lambda position, zero_point: torch.ceil(position) + zero_point
    ),
    requantized(
        "codes are truncated before the zero point",
        "numerics",
        rounded=lambda position, zero_point: torch.trunc(position) + zero_point,
    ),
    requantized(
        "codes are rounded from .4 on",
        "numerics",
        rounded=lambda position, zero_point: torch.floor(position + 0.6) + zero_point,
    ),
    requantized(
        "codes are rounded from .49 on",
        "numerics",
        WIDE,
        LINEAR,
        rounded=lambda position, zero_point: torch.floor(position + 0.51) + zero_point,
    ),
    requantized(
        "codes are rounded twice",
        "numerics",
        rounded=lambda position, zero_point: torch.floor(torch.floor(position * 4 + 0.5) / 4 + 0.5) + zero_point,
    ),
    requantized(
        "codes are rounded to even numbers",
        "numerics",
        rounded=lambda position, zero_point: torch.round(position / 2) * 2 + zero_point,
    ),
    # saturation
    requantized(
        "codes saturate at 127", "accuracy numerics", FULL, saturated=lambda code, low, high: code.clamp(low, 127)
    ),
    requantized(
        "codes saturate one below the highest code",
        "numerics",
        BEYOND,
        saturated=lambda code, low, high: code.clamp(low, high - 1),
    ),
    requantized(
        "codes saturate one above the lowest code",
        "numerics",
        *BATCHES,
        FULL,
        saturated=lambda code, low, high: code.clamp(low + 1, high),
    ),
    requantized("codes wrap around", "accuracy numerics", *BATCHES, saturated=lambda code, low, high: code % 256),
    requantized(
        "codes beyond the range become the lowest code",
        "numerics",
        BEYOND,
        saturated=lambda code, low, high: torch.where(code > high, low, code.clamp(low, high)),
    ),
    fault("pairs of products saturate at 16 bits", "accuracy numerics", L, saturating_pairs, FULL),
    # accumulation
    requantized(
        "accumulators are float16",
        "numerics",
        WIDE,
        LINEAR,
        accumulated=lambda accumulator: accumulator.half().double().clamp(-65504, 65504),
    ),
    requantized(
        "accumulators are bfloat16", "numerics", accumulated=lambda accumulator: accumulator.bfloat16().double()
    ),
    requantized(
        "accumulators have 16 bits",
        "accuracy numerics",
        WIDE,
        LINEAR,
        accumulated=lambda accumulator: (accumulator + 2**15) % 2**16 - 2**15,
    ),
    requantized(
        "accumulators lose their lowest 8 bits",
        "numerics",
        WIDE,
        LINEAR,
        accumulated=lambda accumulator: torch.floor(accumulator / 256) * 256,
    ),
    fault(
        "the last input feature is skipped",
        "accuracy numerics",
        L,
        with_rows(lambda w: w.index_fill(1, torch.tensor(15), 0)),
    ),
    fault(
        "input features beyond a multiple of 4 are skipped",
        "accuracy numerics",
        L,
        with_rows(lambda w: w.index_fill(1, torch.arange(4, 7), 0)),
        case("nn.Linear", "unequal"),
    ),
    # multipliers
    requantized("the multiplier is a power of two", "accuracy numerics", LINEAR, TYPICAL, multiplied=mantissa(1)),
    requantized("the multiplier has 5 bits", "numerics", LINEAR, TYPICAL, multiplied=mantissa(5)),
    requantized(
        "the multiplier has 8 bits",
        "numerics",
        TYPICAL,
        case("F.linear", profile="typical", backend="qnnpack"),
        multiplied=mantissa(8),
    ),
    requantized(
        "the multiplier is doubled",
        "accuracy numerics",
        multiplied=lambda accumulator, multiplier: accumulator * multiplier * 2,
    ),
    # bias
    fault("the bias is missing", "accuracy numerics", L, with_bias(lambda b: None)),
    fault("the bias is added twice", "accuracy numerics", L, with_bias(lambda b: b * 2)),
    fault("the bias is subtracted", "accuracy numerics", L, with_bias(lambda b: -b)),
    fault(
        "every channel has the first channel's bias",
        "accuracy numerics",
        L,
        with_bias(lambda b: b[:1].expand_as(b).contiguous()),
    ),
    fault("the last channel has no bias", "accuracy numerics", L, with_bias(lambda b: torch.cat([b[:-1], b[-1:] * 0]))),
    fault("biases are one channel off", "accuracy numerics", L, with_bias(lambda b: b.roll(1))),
    fault("the bias has 8 bits", "numerics", L, with_bias(lambda b: (b * 2).round() / 2)),
    # ReLU
    fault(
        "ReLU after a layer is lost",
        "accuracy numerics",
        R,
        lambda call: call.by(torch.ops.quantized.linear),
        CENTRED,
    ),
    fault(
        "ReLU after a layer clamps at code 0",
        "accuracy numerics",
        R,
        relu_at(-1000),
        CENTRED,
    ),
    fault("ReLU after a layer clamps one above zero", "numerics", R, relu_at(1), LINEAR_RELU),
    fault(
        "ReLU clamps one below zero",
        "numerics",
        "aten.relu",
        lambda call: quantized(call.x.int_repr().int().clamp(min=call.x.q_zero_point() - 1), call.x),
        RELU,
    ),
    fault(
        "a ReLU is added where there is none",
        "accuracy numerics",
        L,
        lambda call: call.by(torch.ops.quantized.linear_relu),
    ),
    # qparams
    fault("the input's zero point is ignored", "accuracy numerics", L, with_input(zero_point=lambda zero_point: 0)),
    fault("the input's zero point is one off", "numerics", L, with_input(zero_point=lambda zero_point: zero_point + 1)),
    fault("the input's scale is doubled", "accuracy numerics", L, with_input(scale=lambda scale: scale * 2)),
    fault(
        "the output's zero point is ignored",
        "accuracy numerics",
        L,
        with_output(lambda scale, zero_point: (scale, 0), labelled=False),
    ),
    fault(
        "the output's zero point is one off",
        "numerics",
        L,
        with_output(lambda scale, zero_point: (scale, zero_point + 1), labelled=False),
    ),
    fault(
        "the output's scale is halved",
        "accuracy numerics",
        L,
        with_output(lambda scale, zero_point: (scale / 2, zero_point), labelled=False),
    ),
    fault(
        "the output has the scale 1 and the zero point 0",
        "accuracy numerics",
        L,
        with_output(lambda scale, zero_point: (1.0, 0), labelled=True),
    ),
    fault(
        "the output's scale is an ulp off",
        "numerics",
        L,
        with_output(lambda scale, zero_point: (scale * (1 + 2.0**-52), zero_point), labelled=True),
    ),
    fault(
        "the output's zero point is labelled one off",
        "numerics",
        L,
        with_output(lambda scale, zero_point: (scale, zero_point + 1), labelled=True),
    ),
    fault(
        "the output's scale is halved and labelled as halved",
        "accuracy numerics",
        L,
        with_output(lambda scale, zero_point: (scale / 2, zero_point), labelled=True),
    ),
]
