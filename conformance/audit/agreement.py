"""A layer's output beside the reference's for the same inputs."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from conformance.cases.recipes import RANGES, dtype_name
from conformance.checks.tolerances import TYPICAL_BAND
from conformance.models.trace import qparams_of
from conformance.results.audits import LEAST_DB, Agreement, Qparams

from .network import tensors_of

FLOAT_ERROR = 2.0**-16
"""Greatest error of a float output, relative to its greatest value: sums of float32 in another order."""


def decibels(got: Tensor, expected: Tensor) -> float | None:
    """The SQNR in dB of values beside expected ones, None if they are equal or cannot be compared."""
    if got.shape != expected.shape or not got.numel():
        return None
    got, expected = values_of(got).double(), values_of(expected).double()
    if bool((expected.isfinite() & ~got.isfinite()).any()):
        return LEAST_DB
    noise = float((got - expected).nan_to_num(0.0, 0.0, 0.0).square().sum())
    signal = float(expected.nan_to_num(0.0, 0.0, 0.0).square().sum())
    if not noise:
        return None
    return round(max(10 * math.log10(signal / noise), LEAST_DB), 2) if 0 < signal < math.inf else LEAST_DB


def values_of(x: Tensor) -> Tensor:
    return x.dequantize() if x.is_quantized else x


def joined(values: Any) -> Tensor:
    """All float values in any nesting of containers, such as a model's outputs, as one vector; all values where there are
    integers alone, such as classes."""
    flat = [torch.view_as_real(x) if x.is_complex() else values_of(x) for x in tensors_of(values)]
    return torch.cat([x.flatten().float() for x in compared(flat)])


def compared(tensors: list[Tensor]) -> list[Tensor]:
    """Those of some tensors that are in float; all of them where there are integers alone."""
    return [x for x in tensors if x.is_floating_point()] or tensors


def apart(got: Any, expected: Any) -> Iterator[float | None]:
    """Yield the SQNR in dB of each output in float, None for one that is equal or is all zero in the float network."""
    for x, y in zip(compared(tensors_of(got)), compared(tensors_of(expected)), strict=False):
        yield decibels(joined(x), joined(y)) if y.any() else None


def as_tensor(value: Any) -> Any:
    """The values of a tuple or list of tensors as one vector in float; anything else as it is."""
    return joined(value) if isinstance(value, tuple | list) and tensors_of(value) else value


def qparams(x: object) -> Qparams | None:
    """Dtype, scale and zero point of a quantized tensor, None for anything else."""
    if not isinstance(x, Tensor) or not x.is_quantized:
        return None
    scales, zero_points = qparams_of(x)
    return Qparams(dtype_name(x.dtype), float(scales[0]), float(zero_points[0]), scales.numel())


def agreement(got: Tensor, expected: Tensor, position: Tensor | None, band: float) -> Agreement:
    """Compare the codes of two quantized tensors, or the values of two float ones of the same shape.

    `position` are the exact positions on the grid of `expected`; a code off by one is tied within `band` steps of the middle
    between two. If the qparams differ, an element is off where it is further from the exact value than half of the wider
    step, also where the engine's grid ends earlier than the reference's and clips it.
    """
    if not got.is_quantized:
        return _of_values(got, expected)
    if qparams(got) != qparams(expected):
        return _on_another_grid(got, expected, position)
    distance = (got.int_repr().int() - expected.int_repr().int()).abs()
    by_one = distance == 1
    tied = torch.zeros_like(by_one)
    if position is not None and bool(by_one.any()):
        tied = by_one & ((position - position.floor() - 0.5).abs() <= band)
    return Agreement(
        distance.numel(),
        int(tied.sum()),
        int(by_one.sum()) - int(tied.sum()),
        int((distance > 1).sum()),
        int(distance.max()) if distance.numel() else 0,
    )


def _of_values(got: Tensor, expected: Tensor) -> Agreement:
    if not got.is_floating_point():
        return Agreement(got.numel(), off=int((got != expected).sum()))
    got, expected = got.double(), expected.double()
    greatest = float(expected.nan_to_num(0.0, 0.0, 0.0).abs().max()) if expected.numel() else 0.0
    off = (got - expected).abs() > greatest * FLOAT_ERROR
    return Agreement(got.numel(), off=int((off | (got.isnan() != expected.isnan())).sum()))


def _on_another_grid(got: Tensor, expected: Tensor, position: Tensor | None) -> Agreement:
    own, other = qparams(got), qparams(expected)
    assert own is not None
    assert other is not None
    exact = expected.dequantize().double() if position is None else (position - other.zero_point) * other.scale
    ends = [(end - one.zero_point) * one.scale for one, x in ((own, got), (other, expected)) for end in RANGES[x.dtype]]
    distance = (got.dequantize().double() - exact.clamp(min(ends), max(ends))).abs() / max(own.scale, other.scale)
    off = distance > 0.5 + TYPICAL_BAND
    return Agreement(got.numel(), off=int(off.sum()), steps_max=math.ceil(float(distance.max())) if off.any() else 0)


def clipped(position: Tensor | None, dtype: torch.dtype, *, beyond: float = 0.5) -> float:
    """The share of elements whose exact position is beyond the codes of a dtype by more than some steps. Zeros of a ReLU,
    whose zero point is the least code, are not beyond it."""
    if position is None or not position.numel():
        return 0.0
    low, high = RANGES[dtype]
    return float(((position < low - beyond) | (position > high + beyond)).double().mean())


def codes_used(x: Tensor) -> tuple[int, int]:
    """How many codes of a quantized tensor occur, and how many could, by its dtype and its number of elements."""
    low, high = RANGES[x.dtype]
    return int(torch.unique(x.int_repr()).numel()), min(high - low + 1, x.numel())
