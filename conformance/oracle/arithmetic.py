"""Quantization arithmetic: scales, zero points, codes and ties.

Values are float64, in which every product and sum of dyadic data is exact. Scales are float32, the dtype in which observers
compute them and kernels read them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .scheme import Grid

RANGES = {"quint8": (0, 255), "qint8": (-128, 127), "quint4x2": (0, 15), "qint32": (-(2**31), 2**31 - 1)}
"""Least and greatest code of each quantized dtype (documentation of `torch.quantize_per_tensor`). An observer may use a
narrower range to compute qparams; kernels saturate at this one."""

OBSERVER_FLOOR = 2.0**-23
"""Default least scale of an observer: float32's epsilon (documentation of `MinMaxObserver`, `eps`)."""

DYNAMIC_FLOOR = 6.1e-5
"""Least scale of a dynamically quantized tensor: `SMALL_SCALE_THRESHOLD` in
aten/src/ATen/native/quantized/cpu/QuantUtils.h."""

EXACT_BAND = 2.0**-20
"""Half width of a tie in steps, for dyadic values: .5 itself and the last bits of float64."""

FLOAT_BAND = 2.0**-10
"""Half width of a tie in steps, for values that float32 rounds. Each operation of a function or a normalization errs by some
2**-22 of the greatest code, 255."""

INNER_BAND = 2.0**-12
"""Half width of a tie in steps, for a tensor between two operators whose scales are no powers of two: sixteen roundings of
float32, each of 2**-24 of the greatest code."""

INPUT_BAND = 2.0**-14
"""Half width of a tie in steps, for an input whose scale is no power of two: the inverse of the scale and the product with it
are each rounded by 2**-24 of the greatest code, 255."""

HALF_MAX = 65504.0
"""The greatest float16. Packing clamps weights to it (`HandleWeightsSaturation` in
aten/src/ATen/native/quantized/cpu/qlinear_prepack.cpp)."""

Rounding = Callable[[Tensor, Tensor], Tensor]
"""Rounds ties: `rounding(position, zero_point)` returns codes."""


def _away(x: Tensor) -> Tensor:
    return torch.sign(x) * torch.floor(x.abs() + 0.5)


def to_even(position: Tensor, zero_point: Tensor) -> Tensor:
    return torch.round(position)


ROUNDINGS: dict[str, Rounding] = {
    "even": to_even,
    "even, then the zero point": lambda position, zero_point: torch.round(position - zero_point) + zero_point,
    "up": lambda position, zero_point: torch.floor(position + 0.5),
    "down": lambda position, zero_point: torch.ceil(position - 0.5),
    "away from zero": lambda position, zero_point: _away(position),
    "away from zero, then the zero point": lambda position, zero_point: _away(position - zero_point) + zero_point,
}
"""The tie-breaking rules of engines. No config promises a particular one."""


@dataclass(frozen=True, eq=False)
class Qparams:
    """Scale (float32) and zero point (int32, or float32 if `grid.zero_point` is `float`) of one quantized tensor.

    Both have shape (1,), or (n,) for the n indices of `grid.axis`.
    """

    grid: Grid
    scale: Tensor
    zero_point: Tensor

    def like(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and zero point in float64, in a shape that broadcasts over `values`."""
        shape = [1] * values.dim()
        if self.grid.axis is not None:
            shape[self.grid.axis] = -1
        return self.scale.double().reshape(shape), self.zero_point.double().reshape(shape)


@dataclass(frozen=True, eq=False)
class Codes:
    """A quantized tensor: the exact `position` (float64) of every element on its grid, and its codes.

    `low` and `high` (int64) are the two neighbours at a tie, and equal elsewhere.
    """

    qparams: Qparams
    position: Tensor
    low: Tensor
    high: Tensor

    @property
    def tied(self) -> Tensor:
        return self.low != self.high

    @property
    def has_ties(self) -> bool:
        return self.low is not self.high and bool(self.tied.any())

    def dequantized(self, rounding: Rounding = to_even) -> Tensor:
        """Dequantized values (float64), with ties rounded by `rounding`."""
        scale, zero_point = self.qparams.like(self.position)
        codes = self.low
        if self.has_ties:
            # float64 may place a tie a bit beside .5, where `rounding` would take it for the nearer code
            codes = torch.where(self.tied, rounding(torch.floor(self.position) + 0.5, zero_point), codes)
        return (codes - zero_point) * scale


def extremes(values: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Return the least and greatest value (float32, shape (1,)), or those of each index of the grid's axis (shape (n,)).

    Raises ValueError for an empty tensor.
    """
    if values.numel() == 0:
        raise ValueError("an empty tensor has no least and greatest value")
    rows = values.float().reshape(1, -1) if grid.axis is None else values.float().movedim(grid.axis, 0).flatten(1)
    return rows.amin(1), rows.amax(1)


def power_of_two_qparams(low: Tensor, high: Tensor, grid: Grid) -> Qparams:
    """Return the qparams that the `exact` profile's observers compute for values in [`low`, `high`].

    The formulas are those of `MinMaxObserver`'s documentation. The scale is then rounded up to a power of two, and an affine
    zero point is recomputed from the rounded scale. Float zero points follow
    `UniformQuantizationObserverBase._calculate_qparams`: the range need not contain zero, and a scale that is too small
    becomes 1.
    """
    if grid.fixed is not None:
        return Qparams(grid, torch.tensor([grid.fixed[0]]), torch.tensor([grid.fixed[1]], dtype=torch.int32))
    floor = OBSERVER_FLOOR if grid.floor is None else grid.floor
    steps = grid.high - grid.low
    if grid.zero_point == "float":
        scale = (high - low) / steps
        scale = _power_of_two(torch.where(scale > floor, scale, torch.ones_like(scale)))
        return Qparams(grid, scale, -low / scale)
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    if grid.zero_point == "symmetric":
        scale = _power_of_two((torch.maximum(-low, high) / (steps / 2)).clamp(min=floor))
        middle = 0 if grid.dtype == "qint8" else (grid.low + grid.high) // 2
        return Qparams(grid, scale, torch.full(scale.shape, middle, dtype=torch.int32))
    scale = _power_of_two(((high - low) / steps).clamp(min=floor))
    zero_point = grid.low - torch.round(low / scale)
    return Qparams(grid, scale, zero_point.clamp(grid.low, grid.high).int())


def _power_of_two(scale: Tensor) -> Tensor:
    """`scale` rounded up to powers of two."""
    mantissa, exponent = torch.frexp(scale)
    return torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 0.5).int())


def dynamic_qparams(values: Tensor, grid: Grid) -> Qparams:
    """Return the qparams that a dynamically quantized layer computes for its input.

    The source is `ChooseQuantizationParams` in aten/src/ATen/native/quantized/cpu/QuantUtils.h. The range is extended to
    contain zero. A scale of zero becomes 0.1; one below 6.1e-5 becomes 6.1e-5, and the range grows with it. The zero point is
    computed from the end of the range where its rounding error is smaller.

    Raises ValueError for an empty tensor.
    """
    least, greatest = (float(end) for end in extremes(values, grid))
    low, high = min(least, 0.0), max(greatest, 0.0)
    scale = (high - low) / (grid.high - grid.low)
    if _float32(scale) == 0.0 or 1.0 / _float32(scale) > torch.finfo(torch.float32).max:
        scale = 0.1
    floor = _float32(DYNAMIC_FLOOR)
    if scale < floor:
        if low == 0.0:
            high = floor * (grid.high - grid.low)
        elif high == 0.0:
            low = -floor * (grid.high - grid.low)
        else:
            growth = _float32(floor / _float32(scale))
            low, high = _float32(low * growth), _float32(high * growth)
        scale = floor
    from_low, from_high = grid.low - low / scale, grid.high - high / scale
    low_error = abs(grid.low) - abs(low / scale)
    high_error = abs(grid.high) - abs(high / scale)
    zero_point = round(min(max(from_low if low_error < high_error else from_high, grid.low), grid.high))
    return Qparams(grid, torch.tensor([scale], dtype=torch.float32), torch.tensor([zero_point], dtype=torch.int32))


def quantized_by_row(rows: Tensor, grid: Grid) -> tuple[Tensor, bool]:
    """Return rows (float64, shape (n, k)) after each is quantized with qparams of its own, dequantized to float64, and
    whether no zero point is so close to a tie that the last bits of float32 decide it.

    The source is `xnn_f32_qd8_asymmetric_quantization_params` in src/xnnpack/quantization.h of google/XNNPACK. The
    computation is in float32, because ranges of dyadic data put many values on a tie, which the last bits of the inverse
    scale decide: it is the inverse of the rounded scale.
    """
    x = rows.float()
    low, high = x.amin(1, keepdim=True).clamp(max=0.0), x.amax(1, keepdim=True).clamp(min=0.0)
    scale = torch.where(high > low, (high - low) / (grid.high - grid.low), torch.ones_like(low))
    steps = 1.0 / scale
    from_low, from_high = grid.low + low * steps, grid.high + high * steps
    exact = torch.where(from_low + from_high > 0, grid.low - low * steps, grid.high - high * steps)
    zero_point = torch.round(exact.clamp(grid.low, grid.high))
    codes = (torch.round(x * steps) + zero_point).clamp(grid.low, grid.high)
    return ((codes - zero_point) * scale).double(), not bool(near_tie(exact).any())


def _float32(value: float) -> float:
    return torch.tensor(value, dtype=torch.float32).item()


def quantized_weight(weight: Tensor, qparams: Qparams) -> Tensor:
    """Return a weight (float32) after quantization, dequantized to float64.

    The computation is in float32, as in `quantize_val` in aten/src/ATen/native/quantized/AffineQuantizerBase.cpp: multiply by
    the inverse of the scale, then round ties to even. The exact formula would not do, because a symmetric scale puts the
    greatest weight on a tie, 127.5. Rows of 4-bit codes are packed with scale and offset in float16
    (aten/src/ATen/native/quantized/cpu/qembeddingbag_prepack.cpp).
    """
    scale, zero_point = (part.float() for part in qparams.like(weight))
    codes = torch.round(weight.float() * (1.0 / scale) + zero_point).clamp(*RANGES[qparams.grid.dtype])
    if qparams.grid.dtype == "quint4x2":
        return codes.double() * scale.half().double() + (-zero_point * scale).half().double()
    return (codes.double() - zero_point.double()) * scale.double()


def float16_weight(weight: Tensor) -> Tensor:
    """Return a weight (float32) after it is packed as float16, in float64."""
    return weight.clamp(-HALF_MAX, HALF_MAX).half().double()


def near_tie(steps: Tensor) -> Tensor:
    """Where values, in steps of their scale, are so close to .5 that an error of float32 may move them across it."""
    return (steps - steps.floor() - 0.5).abs() < FLOAT_BAND / 32


def quantize(values: Tensor, qparams: Qparams, band: float | Tensor = EXACT_BAND, *, simulated: bool = False) -> Codes:
    """Quantize values (float64): `clamp(round(value / scale + zero_point))` (documentation of `torch.quantize_per_tensor`).

    An element within `band` steps of a tie gets both neighbours; a tensor broadcasts over `values`. A real quantization
    saturates at the ends of the dtype, a `simulated` one, the fake-quantize of QAT, at the ends of the grid.
    """
    grid = qparams.grid
    least, greatest = (grid.low, grid.high) if simulated else RANGES[grid.dtype]
    scale, zero_point = qparams.like(values)
    position = (values.double() / scale).add_(zero_point)
    nearest = torch.round(position)
    tied = (position - nearest).abs_() >= 0.5 - band
    if not bool(tied.any()):
        codes = nearest.clamp_(least, greatest).long()
        return Codes(qparams, position, codes, codes)
    below = torch.floor(position)
    low = torch.where(tied, below, nearest).clamp_(least, greatest).long()
    high = torch.where(tied, below + 1, nearest).clamp_(least, greatest).long()
    return Codes(qparams, position, low, high)
