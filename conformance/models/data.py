"""Deterministic data with the same bits on every platform: dyadic numbers from a counter-based generator.

Everything here is small integers times a power of two, so that float32 sums are exact in any order, inputs and weights lie
on their quantization grids, and every correct engine has to produce the same integers, ties aside.
"""

import math
import zlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def integers(key: str, count: int, low: int, high: int) -> Tensor:
    """Return `count` int64 in [low, high], a function of `key` alone.

    SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): the counter is the
    position, the seed the key's CRC-32. int64 arithmetic wraps alike everywhere; torch's samplers differ by platform.
    """
    z = (torch.arange(1, count + 1) + (zlib.crc32(key.encode()) << 24)) * -0x61C8864680B583EB
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return ((z ^ ((z >> 31) & 0x1FFFFFFFF)) & 0x7FFFFFFF) % (high - low + 1) + low


def grid(key: str, shape: tuple[int, ...], low: int, high: int, exponent: int) -> Tensor:
    """Return float32 of `shape`: integers in [low, high] times 2**exponent, both ends present if there is room."""
    values = integers(key, math.prod(shape), low, high)
    if values.numel() > 1:
        values[0], values[-1] = low, high
    return (values * 2.0**exponent).float().reshape(shape)


GREATEST_BIAS = 2.0
"""What the biases that `fill` gives lie within, either side of zero."""


def fill(model: nn.Module, key: str, levels: int) -> None:
    """Give every parameter and buffer of `model` dyadic values; weights lie within ±`levels` steps of 2**-7.

    Variances make sqrt(var + eps) a power of two, so that batch norm folds into dyadic weights: gamma / sqrt(var + eps) is
    between 1/4 and 2 and has its own value for each channel.
    """
    norms = {name: m for name, m in model.named_modules() if hasattr(m, "eps")}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    with torch.no_grad():
        for name, tensor in tensors:
            owner, _, leaf = name.rpartition(".")
            label, shape = f"{key}/{name}", tuple(tensor.shape)
            if leaf == "running_var":
                eps = norms[owner].eps
                tensor.copy_(4.0 ** integers(label, tensor.numel(), -1 if eps < 0.25 else 0, 1).double() - eps)
            elif leaf == "running_mean":
                tensor.copy_(grid(label, shape, -8, 8, -4))
            elif leaf == "weight" and (owner in norms or tensor.dim() < 2):
                tensor.copy_(grid(label, shape, 1, 1, 0) * 2.0 ** integers(label, tensor.numel(), -1, 0).reshape(shape))
            elif leaf.startswith("bias"):
                # a norm gives multiples of small powers of two, half of them ties, but for what this adds
                tensor.copy_(grid(label, shape, -32, 32, -4) + (2.0**-9 if owner in norms else 0.0))
            elif tensor.is_floating_point() and tensor.dim() > 1:
                tensor.copy_(grid(label, shape, -levels, levels, -7))
                flat = tensor.flatten(1)
                if flat.shape[1] > 1:  # every row reaches both ends, so that per-channel scales are powers of two
                    flat[:, 0], flat[:, -1] = -levels * 2.0**-7, levels * 2.0**-7


def normal(key: str, shape: tuple[int, ...], scale: float = 1.0) -> Tensor:
    """Return float32 of `shape`, all but normally distributed: sums of twelve uniform integers, which have variance 1 in
    units of their range (Irwin-Hall distribution)."""
    drawn = integers(key, 12 * math.prod(shape), 0, 65535).reshape(-1, 12).sum(1) - 6 * 65535
    return (drawn.double() / 65536 * scale).float().reshape(shape)


def fill_typical(model: nn.Module, key: str) -> None:
    """Give every parameter and buffer of `model` values as training leaves them: weights with a variance of 1 over the
    number of their inputs, factors about 1, biases and means about 0."""
    norms = {name for name, m in model.named_modules() if hasattr(m, "eps")}
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            owner, _, leaf = name.rpartition(".")
            label, shape = f"{key}/{name}", tuple(tensor.shape)
            if leaf == "running_var":
                tensor.copy_(integers(label, tensor.numel(), 32, 96) / 64)
            elif leaf == "weight" and (owner in norms or tensor.dim() < 2):
                tensor.copy_(1 + normal(label, shape, 0.1))
            elif leaf == "running_mean" or leaf.startswith("bias"):
                tensor.copy_(normal(label, shape, 0.1))
            elif tensor.is_floating_point() and tensor.dim() > 1:
                tensor.copy_(normal(label, shape, math.prod(shape[1:]) ** -0.5))


def ends_alone(data: Tensor) -> Tensor:
    """The first and the last element, which are the ends of their range, with zeros between them."""
    alone = torch.zeros_like(data)
    for end in (0, -1):
        alone.view(-1)[end] = data.view(-1)[end]
    return alone


FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""The memory formats with the channels innermost, by the number of dimensions."""


def laid_out(data: Tensor, layout: str) -> Tensor:
    """The same values in another memory layout (`Operand.layout`)."""
    if layout == "strided":
        return torch.stack([data, data], -1).flatten(-2)[..., ::2]
    return data.contiguous(memory_format=FORMATS[data.dim()])


def with_ends(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Give every item of every input, float32 of two or more dimensions, both ends of its range.

    The qparams that a dynamically quantized layer chooses are those of all that it is given: now every part has the same.
    """
    for x in inputs:
        if x.is_floating_point() and x.dim() > 1:
            low, high = x.min(), x.max()
            flat = x.view(len(x), -1)
            flat[:, 0], flat[:, -1] = low, high
    return inputs


def with_unequal_channels(model: nn.Module) -> None:
    """Divide the weights of every other output channel by 2 or 4, so that per-channel scales are not all the same."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(2.0 ** -(torch.arange(len(weight)) % 3).reshape(-1, *[1] * (weight.dim() - 1)))


def channels_last(inputs: Sequence[Tensor]) -> list[Tensor] | None:
    """The same values with the channels innermost in memory, or None if no input has that format."""
    if not any(x.dim() in FORMATS for x in inputs):
        return None
    return [x.contiguous(memory_format=FORMATS[x.dim()]) if x.dim() in FORMATS else x for x in inputs]
