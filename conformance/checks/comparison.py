"""Comparison of outputs with goldens: codes, scale and zero point, never dequantized values alone."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.cases.recipes import dtype_name
from conformance.engines.trace import Output
from conformance.goldens.golden import Expected

from .tolerances import Tolerance

SHOWN = 4
"""Elements shown of those that differ, the worst first."""

Exact = Callable[[], Tensor | None]
"""Gives the exact positions on the grid (float64), or None if there are none to be had."""


@dataclass(frozen=True)
class Comparison:
    """How an output compares with its golden: of `total` elements, `ties` lie at a tie and have the other of its two codes,
    `tolerated` are off by no more than the tolerance, `mismatched` by more, and the rest are equal.

    `steps_max` is the greatest distance, in steps, of those that are mismatched or tolerated.
    """

    total: int = 0
    mismatched: int = 0
    ties: int = 0
    tolerated: int = 0
    steps_max: int = 0
    detail: str = ""

    def plus(self, other: "Comparison") -> "Comparison":
        return Comparison(
            self.total + other.total,
            self.mismatched + other.mismatched,
            self.ties + other.ties,
            self.tolerated + other.tolerated,
            max(self.steps_max, other.steps_max),
            self.detail or other.detail,
        )


def differ(first: Tensor, again: Tensor) -> Tensor:
    """Where two float tensors of a shape differ (bool); NaN is equal to NaN."""
    return ~((first == again) | (first.isnan() & again.isnan()))


def _nothing_fits(output: Output, detail: str) -> Comparison:
    return Comparison(output.values.numel(), output.values.numel(), detail=detail)


def _table(wrong: Tensor, off: Tensor, columns: dict[str, Tensor]) -> str:
    """The worst elements, ` | ` between them: where each is and what every column has there."""
    worst = off.flatten().topk(min(SHOWN, int(wrong.sum()))).indices
    rows = []
    for flat in worst.tolist():
        where = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), off.shape))
        rows.append(f"{where} " + " ".join(f"{name} {float(of.flatten()[flat]):.9g}" for name, of in columns.items()))
    return " | ".join(rows)


def compare_codes(got: Tensor, expected: Expected, allowed: Tolerance, exact: Exact = lambda: None) -> Comparison:
    """Compare codes with a golden's: at a tie a code is either neighbour, elsewhere it is the golden's.

    `allowed.steps` widens both within `allowed.band` of a tie. `exact` is asked for that and for the message.
    """
    codes, low, high = got.int(), expected.low.int(), expected.high.int()
    off = torch.maximum(low - codes, codes - high).clamp(min=0)
    wrong, tied = off > allowed.anywhere, (off == 0) & (codes != expected.code.int())
    positions = exact() if bool(wrong.any()) else None
    if positions is not None:
        wrong &= (codes - positions).abs() > allowed.steps - 0.5 + allowed.band
    detail = ""
    if bool(wrong.any()):
        columns = {"got": codes, "golden": expected.code}
        if positions is not None:
            columns["exact"] = positions
        percent = 100 * int(wrong.sum()) / wrong.numel()
        beyond = off * wrong
        detail = (
            f"{int(wrong.sum())} of {wrong.numel()} codes differ ({percent:.1f}%), by up to {int(beyond.max())} steps: "
            f"{_table(wrong, beyond, columns)}"
        )
    return Comparison(
        codes.numel(),
        int(wrong.sum()),
        int(tied.sum()),
        int(((off > 0) & ~wrong).sum()),
        int(off.max()) if off.numel() else 0,
        detail,
    )


def compare_outputs(got: Output, expected: Expected, allowed: Tolerance, exact: Exact = lambda: None) -> Comparison:
    """Compare one output: codes, scale and zero point where it is quantized, values otherwise."""
    if got.values.shape != expected.low.shape:
        return _nothing_fits(got, f"shape {tuple(got.values.shape)}, golden {tuple(expected.low.shape)}")
    q = got.quantized
    if q is None or not expected.quantized:
        if q is None and not expected.quantized:
            return _compare_values(got.values, expected.low, allowed)
        return _nothing_fits(got, f"gives {'float values' if q is None else 'codes'}, the golden has the other")
    if q.qscheme() not in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return _nothing_fits(got, f"{str(q.qscheme()).removeprefix('torch.')}, golden per_tensor_affine")
    if (q.q_scale(), q.q_zero_point(), dtype_name(q.dtype)) != (expected.scale, expected.zero_point, expected.dtype):
        return _nothing_fits(
            got,
            f"scale {q.q_scale()!r}, zero point {q.q_zero_point()}, {dtype_name(q.dtype)}, "
            f"golden {expected.scale!r}, {expected.zero_point}, {expected.dtype}",
        )
    return compare_codes(q.int_repr(), expected, allowed, exact)


def _compare_values(got: Tensor, expected: Tensor, allowed: Tolerance) -> Comparison:
    """Float outputs: equal but for the rounding of float32, relative to the greatest value or to what went into it."""
    got, expected = got.double(), expected.double()
    greatest = max(float(expected.abs().max()) if expected.numel() else 0.0, allowed.magnitude)
    off = (got - expected).abs().nan_to_num(torch.inf)
    wrong = off > greatest * max(allowed.relative, 2.0**-20)
    if not bool(wrong.any()):
        return Comparison(got.numel())
    detail = (
        f"{int(wrong.sum())} of {wrong.numel()} values differ, by up to {float(off.max()):.6g}: "
        f"{_table(wrong, off, {'got': got, 'golden': expected})}"
    )
    return Comparison(got.numel(), int(wrong.sum()), detail=detail)
