"""Facts of a kernel's call: sizes, options, memory formats, qparams and counts, by name."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from faults.kernels import Call
from torch import Tensor

from .unseen import unseen

Fact = int | float | str | bool
Facts = Mapping[str, Fact]

OUT = "out"
"""The argument that takes the result of an overload with that name."""

PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)


def exponent(scale: float) -> int:
    """The exponent of the power of two at or below a scale; -1000 for 0."""
    return math.floor(math.log2(scale)) if scale > 0 else -1000


def layout(x: Tensor) -> str:
    """The memory format of a tensor. A contiguous tensor may be channels_last too."""
    if x.is_contiguous():
        return "contiguous"
    for rank, form in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if x.dim() == rank and x.is_contiguous(memory_format=form):
            return "channels_last"
    return "strided"


def facts_of(call: Call, count: int) -> dict[str, Fact]:
    """The facts of a call before it is made; it is the `count`th of its kernel in the run, from 1."""
    facts: dict[str, Fact] = {"call": count, "threads": torch.get_num_threads()}
    for name, value in call.arguments.items():
        facts.update(_facts(name, _extents(call, value) if name == "block_size" else value))
    scales = [value.q_scale() for value in call.arguments.values() if _per_tensor(value)]
    if len(scales) > 1 and min(scales) > 0:
        facts["scale ratio exponent"] = exponent(scales[0] / scales[1])
    output = next((value for name, value in call.arguments.items() if name in OUTPUT_SCALES), None)
    if scales and output:
        facts["multiplier exponent"] = exponent(scales[0] * float(facts.get("greatest weight scale", 1.0)) / output)
    return facts


def _extents(call: Call, sizes: list[int]) -> list[int]:
    """The sizes of a block, with 0 where it has all that the input has: those repeat sizes of the input."""
    return [0 if one == of and of > 1 else one for one, of in zip(sizes, call["input"].shape, strict=True)]


OUTPUT_SCALES = ("output_scale", "Y_scale_i", "scale")


def _per_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_quantized and value.qscheme() in PER_TENSOR


def _facts(name: str, value: Any) -> Iterator[tuple[str, Fact]]:
    if isinstance(value, Tensor):
        yield from _of_tensor(name, value)
    elif isinstance(value, torch.ScriptObject):
        yield from _of_packed(value)
    elif isinstance(value, list | tuple):
        yield f"{name} length", len(value)
        if value and isinstance(value[0], Tensor):
            for number, part in enumerate(value[:2]):
                yield from _of_tensor(f"{name}[{number}]", part)
        elif value and isinstance(value[0], int | float):
            yield name, text(value)
    elif isinstance(value, bool | int | float):
        yield name, value
        if name in OUTPUT_SCALES:
            yield f"{name} exponent", exponent(value)
    elif value is None:
        yield name, "None"


def text(values: Any) -> str:
    """Several numbers as one value, such as `3x3`."""
    return "x".join(map(str, values))


def _of_tensor(name: str, x: Tensor) -> Iterator[tuple[str, Fact]]:
    yield f"{name} rank", x.dim()
    yield f"{name} elements", x.numel()
    yield f"{name} format", layout(x)
    for axis in range(x.dim()):
        yield f"{name} size({axis if axis < 2 else axis - x.dim()})", x.shape[axis]
    if x.dim() > 2:
        yield f"{name} image", math.prod(x.shape[2:])
    if _per_tensor(x):
        yield f"{name} dtype", str(x.dtype).removeprefix("torch.")
        yield f"{name} zero point", x.q_zero_point()
        yield f"{name} scale exponent", exponent(x.q_scale())
    elif x.dtype in (torch.int32, torch.int64) and x.numel() and name != OUT:  # whose content is what memory had
        yield f"{name} greatest", int(x.max())


def _of_packed(packed: Any) -> Iterator[tuple[str, Fact]]:
    """Facts of packed weights: options of a convolution, sizes, bias, and scales."""
    for option in ("stride", "padding", "output_padding", "dilation"):
        if packed._has_method(option):
            yield option, text(getattr(packed, option)())
    if packed._has_method("groups"):
        yield "groups", packed.groups()
    if packed._has_method("bit_rate"):
        yield "bits", packed.bit_rate()
        return
    if packed._has_method("unpack"):
        with suppress(RuntimeError):  # QNNPACK cannot unpack some weights
            yield from unseen(_of_unpacked, packed)


def _of_unpacked(packed: Any) -> list[tuple[str, Fact]]:
    weight, bias = packed.unpack()
    return [*_of_weight(weight), ("bias", bias is not None)]


def _of_weight(weight: Tensor) -> Iterator[tuple[str, Fact]]:
    yield "output channels", weight.shape[0]
    yield "input channels", weight.shape[1]
    if weight.dim() > 2:
        yield "kernel_size", text(weight.shape[2:])
    yield "products", math.prod(weight.shape[1:])
    if not weight.is_quantized:
        return
    per_channel = weight.qscheme() not in PER_TENSOR
    yield "per channel", per_channel
    scales = weight.q_per_channel_scales() if per_channel else torch.tensor([weight.q_scale()])
    yield "greatest weight scale", float(scales.max())
    yield "weight scale exponent", exponent(float(scales.max()))
    if per_channel and float(scales.min()) > 0:
        yield "weight scale ratio exponent", exponent(float(scales.max() / scales.min()))
