"""Comparison of outputs with goldens: codes, scale and zero point, never dequantized values alone."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from conformance.cases.recipes import dtype_name
from conformance.goldens.golden import Expected
from conformance.models.trace import Output
from conformance.oracle.arithmetic import FLOAT_BAND, RANGES, Codes, Qparams, quantize
from conformance.oracle.scheme import Grid
from conformance.results.findings import Finding
from conformance.results.findings.stages import Lies
from conformance.results.findings.values import (
    CodesDiffer,
    Element,
    OutputKind,
    OutputQparams,
    OutputScheme,
    OutputShape,
    ValuesDiffer,
)

from .places import place_of
from .tolerances import EQUAL, Tolerance

SHOWN = 4
"""Elements of a finding, the worst first."""

PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)

Exact = Callable[[], Tensor | None]
"""Returns the exact positions on the grid (float64, in steps), or None if they are unknown."""


@dataclass(frozen=True)
class Comparison:
    """Counts of the elements of outputs that are compared with their goldens.

    Of `total` elements, `ties` lie at a tie and have the other of its two codes, `tolerated` are off by no more than the
    tolerance, `mismatched` by more, and the rest are equal. `steps_max` is the greatest distance, in steps, of the mismatched
    and tolerated ones. `findings` are about the first output that does not agree with its golden.
    """

    total: int = 0
    mismatched: int = 0
    ties: int = 0
    tolerated: int = 0
    steps_max: int = 0
    findings: tuple[Finding, ...] = ()

    def plus(self, other: "Comparison") -> "Comparison":
        return Comparison(
            self.total + other.total,
            self.mismatched + other.mismatched,
            self.ties + other.ties,
            self.tolerated + other.tolerated,
            max(self.steps_max, other.steps_max),
            self.findings or other.findings,
        )


FLOAT32 = 2.0**-20
"""The error of a float32 result, relative to the greatest value: that of 16 roundings."""


@dataclass(frozen=True)
class Place:
    """The check and the number of the output that a comparison is about."""

    check: str = "numerics"
    output: int = 0


ENGINE_OUTPUT = Place()


def differ(first: Tensor, again: Tensor) -> Tensor:
    """Mask (bool) of the elements in which two float tensors of one shape differ; NaN is equal to NaN."""
    return ~((first == again) | (first.isnan() & again.isnan()))


def float32_error(values: Tensor) -> float:
    """The error of float32 results that is allowed, from the greatest finite value among them."""
    finite = values[values.isfinite()]
    return FLOAT32 * float(finite.abs().max()) if finite.numel() else 0.0


def _worst(wrong: Tensor, off: Tensor, got: Tensor, golden: Tensor, exact: Tensor | None = None) -> tuple[Element, ...]:
    """The elements that are furthest off, at most SHOWN of those that are wrong."""
    elements = []
    for flat in off.flatten().topk(min(SHOWN, int(wrong.sum()))).indices.tolist():
        index = tuple(map(int, numpy.unravel_index(flat, tuple(off.shape))))  # torch's function would import sympy
        columns = (got, golden) if exact is None else (got, golden, exact)
        elements.append(Element(index, *(float(column.flatten()[flat]) for column in columns)))
    return tuple(elements)


def _lies(place: Place, wrong: Tensor) -> tuple[Lies, ...]:
    """The finding that says where the elements of a mask lie, if that has a name."""
    return (Lies(place.check, where),) if (where := place_of(wrong)) else ()


def compare_codes(
    got: Tensor,
    expected: Expected,
    allowed: Tolerance,
    exact: Exact = lambda: None,
    place: Place = ENGINE_OUTPUT,
) -> Comparison:
    """Compare codes with a golden's: at a tie either neighbour is right, elsewhere only the golden's code.

    `allowed.steps` widens both within `allowed.band` of a tie. `exact` is called only if codes differ: to decide whether they
    lie within the band, and for the finding.
    """
    in_order = bool((expected.low <= expected.high).all())  # a golden may be forged
    if in_order and got.dtype == expected.code.dtype and torch.equal(got, expected.code):
        return Comparison(got.numel())
    codes, low, high = got.int(), expected.low.int(), expected.high.int()
    off = torch.maximum(low - codes, codes - high).clamp(min=0)
    wrong, tied = off > allowed.anywhere, (off == 0) & (codes != expected.code.int())
    positions = exact() if bool(wrong.any()) else None
    if positions is not None:
        wrong &= (codes - positions).abs() > allowed.steps - 0.5 + allowed.band
    findings: tuple[Finding, ...] = ()
    if bool(wrong.any()):
        beyond = off * wrong
        elements = _worst(wrong, beyond, codes, expected.code, positions)
        counts = int(wrong.sum()), wrong.numel(), int(beyond.max())
        findings = (CodesDiffer(place.check, place.output, *counts, elements=elements), *_lies(place, wrong))
    return Comparison(
        codes.numel(),
        int(wrong.sum()),
        int(tied.sum()),
        int(((off > 0) & ~wrong).sum()),
        int(off.max()) if off.numel() else 0,
        findings,
    )


def compare_outputs(
    got: Output,
    expected: Expected,
    allowed: Tolerance,
    exact: Exact = lambda: None,
    place: Place = ENGINE_OUTPUT,
) -> Comparison:
    """Compare one output: codes, scale and zero point where it is quantized, values otherwise.

    All elements of an output count as mismatched if its shape, kind, scheme, dtype, scale or zero point is another.
    """
    if finding := _of_another_kind(got, expected, place):
        own = _on_its_own_grid(got, expected, exact, place) if isinstance(finding, OutputQparams) else ()
        return Comparison(got.values.numel(), got.values.numel(), findings=(finding, *own))
    if got.quantized is None:
        return _compare_values(got.values, expected, allowed, place)
    return compare_codes(got.quantized.int_repr(), expected, allowed, exact, place)


def _of_another_kind(got: Output, expected: Expected, place: Place) -> Finding | None:
    """The finding about an output whose elements cannot be compared with the golden's, or None if they can."""
    check, output, q = place.check, place.output, got.quantized
    if got.values.shape != expected.low.shape:
        return OutputShape(check, output, tuple(got.values.shape), tuple(expected.low.shape))
    if (q is None) is expected.quantized:
        return OutputKind(check, output, quantized=q is not None)
    if q is None:
        return None
    if q.qscheme() not in PER_TENSOR:
        return OutputScheme(check, output, str(q.qscheme()).removeprefix("torch."))
    qparams = (q.q_scale(), q.q_zero_point(), dtype_name(q.dtype))
    if qparams != (expected.scale, expected.zero_point, expected.dtype):
        return OutputQparams(check, output, *qparams, expected.scale, expected.zero_point, expected.dtype)
    return None


def _on_its_own_grid(got: Output, expected: Expected, exact: Exact, place: Place) -> tuple[Finding, ...]:
    """The finding about codes that are not those of the exact values on the grid of the output itself, whose qparams are not
    the golden's: its dtype is, or there is none. Where the golden has two codes, those of either value are right: a tie in a
    quantization before, which versions of torch round differently, gives both."""
    positions, q = exact(), got.quantized
    if positions is None or q is None or dtype_name(q.dtype) != expected.dtype:
        return ()
    scale, zero_point = torch.tensor([q.q_scale()]), torch.tensor([q.q_zero_point()])
    grid = Qparams(Grid(expected.dtype, *RANGES[expected.dtype]), scale, zero_point)

    def regridded(on_golden: Tensor) -> Codes:
        return quantize((on_golden.double() - expected.zero_point) * expected.scale, grid, FLOAT_BAND)

    codes, least, greatest = map(regridded, (positions, expected.low, expected.high))
    tied, stored = expected.low != expected.high, expected.low.dtype
    low = torch.where(tied, torch.minimum(least.low, codes.low), codes.low).to(stored)
    high = torch.where(tied, torch.maximum(greatest.high, codes.high), codes.high).to(stored)
    own = Expected(low, high, q.q_scale(), q.q_zero_point(), expected.dtype)
    return compare_codes(q.int_repr(), own, EQUAL, lambda: codes.position, place).findings


def compare_values(values: Tensor, expected: Expected, place: Place = ENGINE_OUTPUT, slack: float = 0.0) -> Comparison:
    """Compare float values: within the golden's range, and no more than `slack` beyond it. NaN never is."""
    got, low, high = values.double(), expected.low.double(), expected.high.double()
    off = torch.maximum(low - got, got - high).nan_to_num(torch.inf).clamp(min=0)
    wrong = off > slack
    if not bool(wrong.any()):
        return Comparison(got.numel())
    mismatched, elements = int(wrong.sum()), _worst(wrong, off, got, low)
    finding = ValuesDiffer(place.check, place.output, mismatched, wrong.numel(), float(off.max()), elements)
    return Comparison(got.numel(), mismatched, findings=(finding, *_lies(place, wrong)))


def _compare_values(values: Tensor, expected: Expected, allowed: Tolerance, place: Place) -> Comparison:
    """Compare float values: within the golden's range but for the rounding of float32, relative to the greatest value or to
    the greatest intermediate value that may have cancelled out."""
    low = expected.low.double()
    greatest = max(float(low.abs().max()) if low.numel() else 0.0, allowed.magnitude)
    return compare_values(values, expected, place, greatest * max(allowed.relative, FLOAT32))
