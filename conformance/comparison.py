"""Comparison of an engine's outputs with the expected ones: codes, scale and zero point, never dequantized values alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .quantization import RANGES, dtype_name
from .tolerances import TIE_BAND, Tolerance
from .trace import Output


@dataclass(frozen=True)
class Comparison:
    """How an engine's codes compare with the expected ones. `steps_max` is over elements outside the tolerance."""

    total: int = 0
    mismatched: int = 0
    ties: int = 0
    steps_max: int = 0
    detail: str = ""

    def plus(self, other: "Comparison") -> "Comparison":
        return Comparison(
            self.total + other.total,
            self.mismatched + other.mismatched,
            self.ties + other.ties,
            max(self.steps_max, other.steps_max),
            self.detail or other.detail,
        )


def compare_codes(
    got: Tensor, scale: float, zero_point: int, exact: Tensor, limits: tuple[int, int], allowed: Tolerance
) -> Comparison:
    """Compare codes with the exact values (float32 or float64, in real units) on the grid of `scale` and `zero_point`.

    Outside of ties a code equals the exact value rounded; at a tie, within `TIE_BAND` steps of .5, it is either
    neighbour. `allowed.steps` widens both.
    """
    position = exact.double() / scale + zero_point
    low, high = torch.floor(position), torch.ceil(position)
    tie = ((position - low) - 0.5).abs() <= TIE_BAND
    nearest = torch.round(position)
    low = torch.where(tie, low, nearest).clamp(*limits)
    high = torch.where(tie, high, nearest).clamp(*limits)
    codes = got.double()
    off = torch.maximum(low - codes, codes - high).clamp(min=0)
    wrong = off > allowed.steps
    detail = ""
    if bool(wrong.any()):
        worst = torch.unravel_index(off.argmax(), off.shape)
        where = tuple(int(i) for i in worst)
        percent = 100 * int(wrong.sum()) / wrong.numel()
        detail = (
            f"{int(wrong.sum())} of {wrong.numel()} codes differ ({percent:.1f}%), worst {int(off.max())} steps at {where}: "
            f"got {int(codes[worst])}, expected {int(nearest.clamp(*limits)[worst])} (exact {float(position[worst]):.4f})"
        )
    return Comparison(codes.numel(), int(wrong.sum()), int(tie.sum()), int(off.max()) if off.numel() else 0, detail)


def compare_outputs(got: Output, expected: Output, allowed: Tolerance) -> Comparison:
    """Compare one output: codes, scale and zero point where it is quantized, values otherwise."""
    if got.values.shape != expected.values.shape:
        return Comparison(
            got.values.numel(),
            got.values.numel(),
            detail=f"shape {tuple(got.values.shape)}, expected {tuple(expected.values.shape)}",
        )
    q, r = got.quantized, expected.quantized
    if (q is None) != (r is None):
        made = "codes" if q is not None else "float values"
        return Comparison(
            got.values.numel(), got.values.numel(), detail=f"the engine gives {made}, the reference does not"
        )
    if q is None or r is None or expected.exact is None:
        return _compare_values(got.values, expected.values, allowed)
    if (q.q_scale(), q.q_zero_point(), q.dtype) != (r.q_scale(), r.q_zero_point(), r.dtype):
        return Comparison(
            q.numel(),
            q.numel(),
            detail=(
                f"scale {q.q_scale()!r}, zero point {q.q_zero_point()}, {dtype_name(q.dtype)}; "
                f"expected {r.q_scale()!r}, {r.q_zero_point()}, {dtype_name(r.dtype)}"
            ),
        )
    return compare_codes(q.int_repr(), r.q_scale(), r.q_zero_point(), expected.exact, RANGES[r.dtype], allowed)


def _compare_values(got: Tensor, expected: Tensor, allowed: Tolerance) -> Comparison:
    """Float outputs: equal but for the rounding of float32, or the tolerance relative to the greatest value."""
    got, expected = got.double(), expected.double()
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    off = (got - expected).abs()
    wrong = off > scale * max(allowed.relative, 2.0**-20)
    if not bool(wrong.any()) and not bool(got.isnan().any()):
        return Comparison(got.numel())
    worst = torch.unravel_index(off.nan_to_num(torch.inf).argmax(), off.shape)
    where = tuple(int(i) for i in worst)
    return Comparison(
        got.numel(),
        int(wrong.sum()),
        detail=(
            f"{int(wrong.sum())} of {wrong.numel()} values differ, worst by {float(off[worst]):.6g} at {where}: "
            f"got {float(got[worst]):.6g}, expected {float(expected[worst]):.6g}"
        ),
    )
