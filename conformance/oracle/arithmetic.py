"""Scales, zero points and codes in exact arithmetic.

Values are float64, in which every product and sum of dyadic data is exact. A scale is float32, because observers compute it
so and quantized tensors keep it so.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .scheme import Grid

RANGES = {"quint8": (0, 255), "qint8": (-128, 127), "quint4x2": (0, 15), "qint32": (-(2**31), 2**31 - 1)}
"""The codes of each dtype (documentation of `torch.quantize_per_tensor`'s dtypes). Observers may use fewer of them to choose
qparams; kernels saturate at these."""

OBSERVER_FLOOR = 2.0**-23
"""Least scale of an observer that is given none: float32's epsilon (documentation of `MinMaxObserver`, `eps`)."""

DYNAMIC_FLOOR = 6.1e-5
"""Least scale of a dynamically quantized tensor: `SMALL_SCALE_THRESHOLD` in
aten/src/ATen/native/quantized/cpu/QuantUtils.h."""

EXACT_BAND = 2.0**-20
"""Steps around .5 that count as a tie where the value is dyadic: nothing but .5 itself and float64's last bits."""

FLOAT_BAND = 2.0**-10
"""Steps around .5 that count as a tie where float32 has to round: its error, some 2**-22 of the greatest code, 255, for
each of the few operations of a function or the many of a normalization."""

Rounding = Callable[[Tensor, Tensor], Tensor]
"""Rounds ties: takes positions and zero points, gives codes."""


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
"""What engines do with a tie. Which of them is no part of any promise."""


@dataclass(frozen=True, eq=False)
class Qparams:
    """Scale (float32) and zero point (int32, or float32 where the grid says so) of one quantized tensor.

    Both have one element, or one for each index of `grid.axis`.
    """

    grid: Grid
    scale: Tensor
    zero_point: Tensor

    def like(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and zero point in float64, in a shape that goes with `values`."""
        shape = [1] * values.dim()
        if self.grid.axis is not None:
            shape[self.grid.axis] = -1
        return self.scale.double().reshape(shape), self.zero_point.double().reshape(shape)


@dataclass(frozen=True, eq=False)
class Codes:
    """A quantized tensor: the exact `position` (float64) of every element on its grid and the codes next to it.

    `low` and `high` (int64) are the same outside of ties, and the two neighbours at one.
    """

    qparams: Qparams
    position: Tensor
    low: Tensor
    high: Tensor

    @property
    def tied(self) -> Tensor:
        return self.low != self.high

    def dequantized(self, rounding: Rounding = to_even) -> Tensor:
        """Values (float64) with ties rounded as `rounding` does."""
        scale, zero_point = self.qparams.like(self.position)
        # a tie that float64 sees a bit beside .5 is one all the same
        codes = torch.where(self.tied, rounding(torch.floor(self.position) + 0.5, zero_point), self.low)
        return (codes - zero_point) * scale


def extremes(values: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Least and greatest value (float32): of the whole tensor, or for each index of the grid's axis.

    Raises ValueError for an empty tensor: nothing can be chosen from it.
    """
    if values.numel() == 0:
        raise ValueError("an empty tensor has no least and greatest value")
    rows = values.float().reshape(1, -1) if grid.axis is None else values.float().movedim(grid.axis, 0).flatten(1)
    return rows.amin(1), rows.amax(1)


def power_of_two_qparams(low: Tensor, high: Tensor, grid: Grid) -> Qparams:
    """Scale and zero point that the `exact` profile's observers choose for values in [`low`, `high`].

    The formulas are those of `MinMaxObserver`'s documentation, the scale then rounded up to a power of two and an affine
    zero point fitted to that; with float zero points, those of `UniformQuantizationObserverBase._calculate_qparams`, where
    the range need not hold zero and a scale that is too small becomes 1.
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
    """The least powers of two that are not below `scale`."""
    mantissa, exponent = torch.frexp(scale)
    return torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 0.5).int())


def dynamic_qparams(values: Tensor, grid: Grid) -> Qparams:
    """Scale and zero point that a dynamically quantized layer chooses for what it is called with.

    `ChooseQuantizationParams` in aten/src/ATen/native/quantized/cpu/QuantUtils.h: the range is made to hold zero, a scale
    of zero becomes 0.1, one below 6.1e-5 becomes that and the range grows with it, and the zero point is fitted to that
    end of the range where it errs less.
    """
    least, greatest = (float(x) for x in extremes(values, grid))
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
            grown = _float32(floor / _float32(scale))
            low, high = _float32(low * grown), _float32(high * grown)
        scale = floor
    from_low, from_high = grid.low - low / scale, grid.high - high / scale
    low_errs = abs(grid.low) - abs(low / scale)
    high_errs = abs(grid.high) - abs(high / scale)
    zero_point = round(min(max(from_low if low_errs < high_errs else from_high, grid.low), grid.high))
    return Qparams(grid, torch.tensor([scale], dtype=torch.float32), torch.tensor([zero_point], dtype=torch.int32))


def _float32(value: float) -> float:
    return torch.tensor(value, dtype=torch.float32).item()


def quantized_weight(weight: Tensor, qparams: Qparams) -> Tensor:
    """A weight (float32) after quantization, dequantized to float64.

    Computed in float32 as `quantize_val` in aten/src/ATen/native/quantized/AffineQuantizerBase.cpp states it, times the
    inverse of the scale and ties to even: a symmetric scale puts the greatest weight on a tie, 127.5, every time. Rows of
    4-bit codes are packed with scale and offset in float16 (aten/src/ATen/native/quantized/cpu/qembeddingbag_prepack.cpp).
    """
    scale, zero_point = (part.float() for part in qparams.like(weight))
    codes = torch.round(weight.float() * (1.0 / scale) + zero_point).clamp(*RANGES[qparams.grid.dtype])
    if qparams.grid.dtype == "quint4x2":
        return codes.double() * scale.half().double() + (-zero_point * scale).half().double()
    return (codes.double() - zero_point.double()) * scale.double()


def quantize(values: Tensor, qparams: Qparams, band: float = EXACT_BAND, *, simulated: bool = False) -> Codes:
    """Put values (float64) on a grid: `clamp(round(value / scale + zero_point))` (documentation of
    `torch.quantize_per_tensor`), both neighbours within `band` steps of a tie.

    A `simulated` quantization, the fake-quantize of QAT, saturates at the grid's ends and a real one at the dtype's.
    """
    grid = qparams.grid
    least, greatest = (grid.low, grid.high) if simulated else RANGES[grid.dtype]
    scale, zero_point = qparams.like(values)
    position = values.double() / scale + zero_point
    below, nearest = torch.floor(position), torch.round(position)
    tied = (position - below - 0.5).abs() <= band
    low = torch.where(tied, below, nearest).clamp(least, greatest)
    high = torch.where(tied, below + 1, nearest).clamp(least, greatest)
    return Codes(qparams, position, low.long(), high.long())
