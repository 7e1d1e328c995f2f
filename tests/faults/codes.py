"""Faults of certain codes, accumulators, places and earlier calls, which only sweeps over all codes meet."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .fault import case
from .kernels import Call, Kernel, after, integers, kernel_faults, quantized

HARDSWISH = case("nn.Hardswish", "every_code", profile="codes")
ELU = case("nn.ELU", "every_code", profile="codes")
RELU = case("nn.ReLU", "every_code", profile="codes")
ADD = case("torch.add", "every_pair", profile="codes")
MUL = case("operator.mul", "every_pair", profile="codes")
LINEAR = case("nn.Linear", "one_weight", profile="codes")
TWICE = case("operator.mul", "every_code_same_tensor", profile="codes")
CONV = case("nn.Conv2d", "one_weight", profile="codes")

ACCUMULATOR = -4943
"""A sum of product and bias, in steps of their scales, that occurs in the sweep."""

LANES = 64
"""Codes of the greatest vector."""


def for_codes(*numbers: int) -> Kernel:
    """One up, or down from the greatest code, where the operands have these codes."""

    def kernel(call: Call) -> Tensor:
        result: Tensor = call.original()
        operands = [call[name] for name in call.names if isinstance(call[name], Tensor) and call[name].is_quantized]
        if len(operands) != len(numbers):
            return result
        where = torch.ones(result.shape, dtype=torch.bool)
        for operand, number in zip(operands, numbers, strict=True):
            where &= operand.int_repr() == number
        return moved(result, where)

    return kernel


def moved(result: Tensor, where: Tensor) -> Tensor:
    """One up, or down from the greatest code."""
    c = result.int_repr().int()
    return quantized(torch.where(where, c + 1 - 2 * (c == 255), c), result)


def in_the_tail(call: Call) -> Any:
    """One off for great codes, but not for the greatest, behind the last whole vector."""
    result = call.original()
    where = torch.arange(result.numel()) >= result.numel() // LANES * LANES
    return moved(result, where.reshape(result.shape) & (call.x.int_repr() > 200) & (call.x.int_repr() < 250))


def at_accumulator(number: int) -> Kernel:
    """A linear layer whose requantization is one off at one accumulator of per-tensor weights."""

    def kernel(call: Call) -> Any:
        x, (weight, bias) = call["X"], call["W_prepack"].unpack()
        result = call.original()
        if weight.qscheme() != torch.per_tensor_affine:
            return result
        accumulator = integers(x) @ integers(weight).T
        if bias is not None:
            accumulator += (bias.double() / (x.q_scale() * weight.q_scale())).round()
        return moved(result, accumulator == number)

    return kernel


def one_up_for(applies: Callable[[Call], bool]) -> Kernel:
    """One up for calls that fulfil a condition."""

    def kernel(call: Call) -> Any:
        return moved(call.original(), call.original().int_repr() > 0) if applies(call) else call.original()

    return kernel


def ratio(call: Call) -> float:
    """The output's scale in scales of the input."""
    scale: float = call["output_scale"]
    return scale / call.x.q_scale()


def last_scale() -> Kernel:
    """Use the output's scale of the call before, if weights and the scale of the input are the same as there."""
    before: list[Any] = [None, 0.0]

    def kernel(call: Call) -> Any:
        scale, (weight, _) = call["output_scale"], call["packed_weight"].unpack()
        same = (call.x.q_scale(), *weight.int_repr().flatten().tolist())
        if same != before[0]:
            before[:] = same, scale
        result = call.original(output_scale=before[1])
        return quantized(result.int_repr(), result, scale=scale)

    return kernel


def raising_for_great_scales(call: Call) -> Any:
    if call["scale"] > 8.0:
        raise RuntimeError("the scale is too great")
    return call.original()


def of_input(call: Call) -> Tensor:
    """A result whose scale is that of the input."""
    return call.original(scale=call.x.q_scale())  # type: ignore[no-any-return]


def one_up_in_every_second_call() -> Kernel:
    calls: list[Call] = []

    def kernel(call: Call) -> Any:
        calls.append(call)
        return moved(call.original(), call.x.int_repr() == 0) if len(calls) % 2 else call.original()

    return kernel


KERNELS: dict[str, tuple[str, str, Kernel, str]] = {
    "hardswish: input code 201 is one off": ("numerics", "quantized.hardswish", for_codes(201), HARDSWISH),
    "elu: input code 250 is one off": ("numerics", "quantized.elu", for_codes(250), ELU),
    "addition: one pair of codes is one off": ("numerics", "quantized.add", for_codes(17, 233), ADD),
    "multiplication: one pair of codes is one off": ("numerics", "quantized.mul", for_codes(131, 254), MUL),
    "relu: great codes are one off in the tail": ("numerics stable", "aten.relu", in_the_tail, RELU),
    "linear: one accumulator is one off": ("numerics", "quantized.linear", at_accumulator(ACCUMULATOR), LINEAR),
    "convolution: fine outputs are one off": (
        "numerics",
        "quantized.conv2d",
        one_up_for(lambda call: ratio(call) < 0.05),
        CONV,
    ),
    "convolution: the output keeps the scale of the call before": ("stable", "quantized.conv2d", last_scale(), CONV),
}
"""By the name of a fault: its alarms, the operator and its faulty kernel, and the sweep that notices it."""

_fault = kernel_faults("codes")

FAULTS = [
    *(_fault(name, *fault) for name, fault in KERNELS.items()),
    _fault("the output lacks its last column", "numerics", "quantized.mul", after(lambda y: y[:, :-1]), TWICE),
    _fault("great scales raise", "lowered", "quantized.mul", raising_for_great_scales, TWICE),
    _fault("the scale of the output is its input's", "numerics", "quantized.mul", of_input, TWICE),
    _fault("zero varies", "stable", "quantized.mul", one_up_in_every_second_call(), TWICE),
]
