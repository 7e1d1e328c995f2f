"""Exact arithmetic of modules that are quantized in place: scales and codes of blocks, and products as intervals.

Everything is computed in float64, in which codes, their products and sums of them are exact. What floating-point arithmetic
may round is an interval: `u` is the unit roundoff of a dtype, and a sum of n products in any order is off by at most
n u / (1 - n u) times the sum of their magnitudes (N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2002,
section 3.1).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

UNIT = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""The unit roundoff of each dtype."""


class Grid(Protocol):
    """The rule for the codes of a tensor, as `Codes` states it."""

    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def mapping(self) -> str: ...
    @property
    def blocks(self) -> str | int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def scale(self) -> str: ...
    @property
    def floor(self) -> float: ...
    @property
    def stored(self) -> str: ...
    @property
    def shared(self) -> float: ...


@dataclass(frozen=True)
class Interval:
    """The least and the greatest value that each element may have (float64)."""

    low: Tensor
    high: Tensor

    def outside(self, values: Tensor) -> Tensor:
        """Mask (bool) of the values that are not in the interval; NaN never is."""
        return ~((values >= self.low) & (values <= self.high))


def in_blocks(values: Tensor, blocks: str | int) -> Tensor:
    """The elements that share a scale, one block in each row. Raises ValueError if groups do not divide rows."""
    if blocks == "tensor":
        return values.reshape(1, -1)
    length = values.shape[-1] if blocks == "row" else int(blocks)
    if length and values.shape[-1] % length:
        raise ValueError(f"groups of {length} do not divide {values.shape[-1]} elements")
    return values.reshape(math.prod(values.shape) // length if length else 0, length)


def qparams(values: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """The scale, as it is stored, and zero point of each block (float64, shape (blocks, 1))."""
    scale, zero_point = _qparams(values, grid)
    if not grid.stored:
        return scale, zero_point
    unit = torch.tensor(1.0)
    if grid.shared:  # a quotient of float32 may be a tie of the stored dtype, which the exact one is not
        unit = values.float().abs().amax() / (grid.shared * grid.high)
        scale = (scale.float() / unit).clamp(min=grid.floor)
    return scale.to(getattr(torch, grid.stored)).double() * unit.double(), zero_point


def _qparams(values: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Scales and zero points as they are computed: zero is always in the range."""
    dtype = getattr(torch, grid.scale) if grid.scale else values.dtype
    allowed = 0.0 if grid.shared else grid.floor or torch.finfo(values.dtype).smallest_normal
    floor = torch.tensor(allowed, dtype=dtype).item()
    block = in_blocks(values.double(), grid.blocks)
    if not block.numel():
        return torch.full((len(block), 1), floor).double(), torch.zeros(len(block), 1).double()
    least, greatest = block.amin(-1, keepdim=True).clamp(max=0), block.amax(-1, keepdim=True).clamp(min=0)
    if grid.mapping == "asymmetric":
        scale = ((greatest - least) / (grid.high - grid.low)).clamp(min=floor)
        return scale, (grid.low - torch.round(least / scale)).clamp(grid.low, grid.high)
    if grid.mapping == "from_least":
        least, greatest = block.amin(-1, keepdim=True), block.amax(-1, keepdim=True)
        scale = ((greatest - least) / (grid.high - grid.low)).clamp(min=floor)
        return scale, grid.low - least / scale
    if grid.mapping == "least_squares":
        return least_squares(block, grid.low, grid.high, floor), torch.zeros(len(block), 1).double()
    if grid.mapping in POWERS:
        return POWERS[grid.mapping](block.abs().amax(-1, keepdim=True), grid), torch.zeros(len(block), 1).double()
    if grid.mapping == "no_clipping":
        scale = torch.maximum(least / grid.low, greatest / grid.high)
    else:
        scale = torch.maximum(-least, greatest) / ((grid.high - grid.low) / 2)
    return scale.clamp(min=floor), torch.zeros_like(scale)


MANTISSA = {"float8_e4m3fn": 3, "float8_e5m2": 2, "float4_e2m1": 1}
"""The bits of the mantissa of each dtype of codes."""


def floor_log2(x: Tensor) -> Tensor:
    """The exponent of the power of two at or below each element, which is above 0."""
    return torch.frexp(x).exponent - 1.0


def ceil_log2(x: Tensor) -> Tensor:
    """The exponent of the power of two at or above each element, which is above 0."""
    mantissa, exponent = torch.frexp(x)
    return exponent - (mantissa == 0.5).double()


def _power(exponent: Callable[[Tensor, Grid], Tensor]) -> Callable[[Tensor, Grid], Tensor]:
    """What gives the power of two with an exponent that E8M0 has, of greatest magnitudes; the least one for zeros."""

    def scale(greatest: Tensor, grid: Grid) -> Tensor:
        return torch.where(greatest == 0, 2.0**-127, 2.0 ** exponent(greatest, grid).clamp(-127, 127))

    return scale


def _greatest_exponent(grid: Grid) -> float:
    return math.floor(math.log2(grid.high))


POWERS: Mapping[str, Callable[[Tensor, Grid], Tensor]] = {
    "floor": _power(lambda x, grid: floor_log2(x) - _greatest_exponent(grid)),
    "ceil": _power(lambda x, grid: ceil_log2(x) - _greatest_exponent(grid)),
    "even": _power(
        lambda x, grid: floor_log2(x + 2.0 ** (floor_log2(x) - MANTISSA[grid.dtype] - 1)) - _greatest_exponent(grid)
    ),
    "rceil": _power(lambda x, grid: ceil_log2(x / grid.high)),
}
"""The scales of greatest magnitudes by the rule: the greatest code's power of two stands for that of the magnitude, rounded
down (Open Compute Project, "Microscaling Formats (MX) Specification", version 1.0, 2023, section 6.3), up, or down after the
magnitude is rounded as codes are; or the least power of two for which no code is clipped."""

ITERATIONS = 20
"""How many times scales are chosen anew, at most."""
UNCHANGED = 1e-5
"""The relative change of all scales at which they are taken to stay."""


def least_squares(block: Tensor, low: float, high: float, floor: float, factor: float = 1.0) -> Tensor:
    """The scales with the least squares of errors for codes that are rounded with the scales before, from those of the
    greatest magnitudes on (Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models", 2023, with zero
    points of 0 and the 2-norm). Each is computed anew with an error of a factor."""
    scale = (block.abs().amax(-1, keepdim=True) / max(-low, high)).clamp(min=floor)
    for _ in range(ITERATIONS):
        code = torch.round(block / scale).clamp(low, high)
        squares = (code * code).sum(-1, keepdim=True)
        found = torch.where(squares > 0, (block * code).sum(-1, keepdim=True) / squares, scale) * factor
        before, scale = scale, found.clamp(min=floor)
        if not block.numel() or bool(((scale - before).abs() / before).max() < UNCHANGED):
            break
    return scale


def error_of_sums(count: int) -> float:
    """The relative error of a quotient of two sums of so many products of one sign in float32."""
    return 2 * (count + 1) * UNIT["float32"]


def uncertain(values: Tensor, grid: Grid) -> Tensor:
    """Mask (bool, shape (blocks, 1)) of the scales that errors of their sums may decide: an element that is rounded up or
    down for one changes the scale for which it is rounded next."""
    block = in_blocks(values.double(), grid.blocks)
    if grid.mapping != "least_squares":
        return torch.zeros(len(block), 1, dtype=torch.bool)
    error = error_of_sums(block.shape[1])
    ends = [least_squares(block, grid.low, grid.high, grid.floor, factor) for factor in (1 - error, 1 + error)]
    return (ends[1] - ends[0]).abs() > 4 * error * ends[0]


def codes(values: Tensor, grid: Grid, scale: Tensor, zero_point: Tensor, error: float) -> Interval:
    """The codes (float64) that elements in blocks may have, if their positions on the grid have this relative error."""
    vanished = scale == 0  # after it was rounded: every code stands for zero
    position = in_blocks(values.double(), grid.blocks) / torch.where(vanished, 1.0, scale)
    off = position.abs() * error

    def rounded(at: Tensor) -> Tensor:
        if grid.dtype:
            return _in_float(at.clamp(grid.low, grid.high), grid.dtype)
        if grid.mapping == "from_least":
            return torch.round(at + zero_point).clamp(grid.low, grid.high)
        return (torch.round(at) + zero_point).clamp(grid.low, grid.high)

    low, high = rounded(position - off), rounded(position + off)
    return Interval(torch.where(vanished, grid.low, low), torch.where(vanished, grid.high, high))


def _in_float(values: Tensor, dtype: str) -> Tensor:
    """Values that are rounded to the nearest code of a float dtype, ties to even."""
    if dtype == "float4_e2m1":  # with a step of 0.5 below 2, of 1 below 4, and of 2
        step = 2.0 ** (floor_log2(values.abs().clamp(min=1.0)) - MANTISSA[dtype])
        return torch.round(values / step) * step
    return values.float().to(getattr(torch, dtype)).double()


def values_of(of: Interval, scale: Tensor, zero_point: Tensor) -> Interval:
    """What codes in blocks stand for."""
    return Interval((of.low - zero_point) * scale, (of.high - zero_point) * scale)


def inputs(values: Tensor, grid: Grid, unit: float, fixed: tuple[float, int] | None = None) -> Interval:
    """What the codes of a tensor stand for that each call quantizes, if its arithmetic has a unit roundoff.

    A scale that is off by a rounding or two may shift every code, and a zero point: the interval has all of that.
    """
    found = []
    exact, zero_point = qparams(values, grid)
    if fixed is not None:
        exact, zero_point = torch.full_like(exact, fixed[0]), torch.full_like(zero_point, fixed[1])
    certain = fixed is not None or not unit
    for factor in (1.0,) if certain else (1 - 2 * unit, 1.0, 1 + 2 * unit):
        for step in (0,) if certain or grid.mapping != "asymmetric" else (-1, 0, 1):
            scale, middle = exact * factor, (zero_point + step).clamp(grid.low, grid.high)
            found.append(values_of(codes(values, grid, scale, middle, 3 * unit), scale, middle))
    low, high = (torch.stack([getattr(one, end) for one in found]) for end in ("low", "high"))
    return Interval(low.amin(0).reshape(values.shape), high.amax(0).reshape(values.shape))


Layer = Callable[[Tensor, Tensor], Tensor]
"""A layer without a bias in float64: what it gives for inputs and a weight."""


def outputs(
    layer: Layer,
    x: Interval,
    weight: Tensor,
    bias: Tensor | None,
    dtype: str,
    *,
    step: float | None,
    dequantizes: bool,
) -> Interval:
    """The outputs that a layer may have, whose sums are in float32 and results in a dtype.

    Args:
        layer: the layer, which is linear in x and in the weight.
        x: the inputs; weight: what the codes of the weight stand for; bias: in a shape to be added, or None.
        step: what all products are multiples of, if data are dyadic and scales powers of two. Where float32 has every sum as
            it is, nothing is rounded but the product, before or behind its scale, and the sum with the bias.
        dequantizes: whether operands are rounded to the dtype before they are multiplied.
    """
    above, below = weight.clamp(min=0), weight.clamp(max=0)
    low, high = layer(x.low, above) + layer(x.high, below), layer(x.high, above) + layer(x.low, below)
    magnitude = layer(torch.maximum(x.low.abs(), x.high.abs()), weight.abs())
    if step is not None and bool((magnitude * UNIT["float32"] <= step).all()):
        return _rounded(low, high, bias, dtype)
    products = weight[0].numel() * UNIT["float32"]
    unit, of_sums = UNIT[dtype], products / (1 - products)
    error = of_sums * magnitude + (2 * unit * magnitude if dequantizes else 0)
    error = error + 3 * unit * (torch.maximum(low.abs(), high.abs()) + error)
    low, high = low - error, high + error
    if bias is not None:
        low, high = low + bias, high + bias
    error = unit * torch.maximum(low.abs(), high.abs())
    return Interval(low - error, high + error)


def rows(layer: Layer, indices: Tensor, weight: Tensor, dtype: str, *, exact: bool) -> Interval:
    """What is looked up in a table: values that are dequantized in a dtype, with two roundings unless they are exact."""
    found = layer(indices, weight)
    if exact:
        return _rounded(found, found, None, dtype)
    error = 2 * UNIT[dtype] * found.abs()
    return Interval(found - error, found + error)


def _rounded(low: Tensor, high: Tensor, bias: Tensor | None, dtype: str) -> Interval:
    """A product that is rounded once, or before and after a bias is added."""

    def to(values: Tensor) -> Tensor:
        return values.to(getattr(torch, dtype)).double()

    if bias is None:
        return Interval(to(low), to(high))
    ends = [(to(end + bias), to(to(end) + bias)) for end in (low, high)]
    return Interval(torch.minimum(*ends[0]), torch.maximum(*ends[1]))
