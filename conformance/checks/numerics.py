"""Checks of values: equality with the golden and SQNR against the float model."""

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from conformance.engines.trace import Execution, qparams_of
from conformance.results.profiles import PROFILES

from .comparison import Comparison, compare_outputs
from .evidence import PASS, Evidence, Outcome, fail, skip
from .tolerances import tolerance

SQNR_FLOOR_DB = {"dyadic": {16: 40.0, 8: 20.0, 4: 8.0}, "normal": {16: 60.0, 8: 24.0, 4: 16.0}}
"""Least SQNR by data and bit width. An ideal b-bit quantizer of uniform data gives 6.02 b dB, of normal data that it clips
at four sigmas 6.02 b - 7.3 dB (Gersho and Gray, "Vector Quantization and Signal Compression", 1992, section 5.5). Input,
weight and output are each quantized, which costs 5 dB; some engines have 7 bits for activations, another 6; in `exact` a
scale rounded up to a power of two costs up to 6; and in `typical` an average on its input's grid has lost up to 9."""


def _wrong_shape(evidence: Evidence) -> str:
    """Say which shape is not the float model's; values of such an output are not worth a comparison, or even chance."""
    assert evidence.execution is not None
    for got, expected in zip(evidence.execution.outputs, evidence.expected, strict=False):
        if got.values.shape != expected.shape:
            return f"shape {tuple(got.values.shape)}, the float model gives {tuple(expected.shape)}"
    return ""


def _compared(evidence: Evidence, execution: Execution) -> Comparison:
    """What an execution gave, compared with the golden."""
    assert evidence.golden is not None
    got, expected = execution.outputs, evidence.golden.outputs
    if len(got) != len(expected):
        return Comparison(detail=f"{len(got)} outputs, golden {len(expected)}")
    allowed = tolerance(evidence.run)
    total = Comparison()
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        found = compare_outputs(one, other, allowed, partial(evidence.exact, number))
        total = total.plus(
            replace(found, detail=f"output {number}: {found.detail}") if number and found.detail else found
        )
    return total


def numerics(evidence: Evidence) -> Outcome:
    """The engine's integers are those of the golden, ties aside; scale and zero point are equal."""
    if evidence.execution is None:
        return skip("not executed")
    if evidence.golden is None:
        return skip("there is no golden")
    evidence.comparison = _compared(evidence, evidence.execution)
    return fail(evidence.comparison.detail) if evidence.comparison.detail else PASS


def _best_sqnr_db(evidence: Evidence) -> float:
    """SQNR that an ideal quantizer would have on the outputs' grids: its noise is scale**2 / 12 for each element.

    W. R. Bennett, "Spectra of quantized signals", Bell System Technical Journal 27, 1948.
    """
    assert evidence.execution is not None
    signal = noise = 0.0
    for got, expected in zip(evidence.execution.outputs, evidence.expected, strict=False):
        signal += float(expected.double().pow(2).sum())
        if got.quantized is not None:
            noise += expected.numel() * float(qparams_of(got.quantized)[0].max()) ** 2 / 12
    return 10 * math.log10(signal / noise) if noise and signal else math.inf


def sqnr_db(values: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """Signal-to-quantization-noise ratio of outputs against those of the float64 model, in dB.

    200 without noise; nan where the noise is not finite; minus infinity for noise where there is no signal.
    """
    noise = signal = 0.0
    for got, wanted in zip(values, expected, strict=False):
        noise += float((got.double() - wanted.double()).pow(2).sum())
        signal += float(wanted.double().pow(2).sum())
    if not math.isfinite(noise):
        return math.nan
    if not noise:
        return 200.0
    return 10 * math.log10(signal / noise) if signal else -math.inf


def accuracy(evidence: Evidence) -> Outcome:
    """SQNR of the engine's output against the unfused float64 model is above the floor of profile and bit width."""
    if evidence.execution is None:
        return skip("not executed")
    if wrong := _wrong_shape(evidence):
        return fail(wrong)
    ratio = sqnr_db((output.values for output in evidence.execution.outputs), evidence.expected)
    if math.isnan(ratio):
        return fail("the output is not finite")
    if not any(bool(expected.any()) for expected in evidence.expected):
        return skip("no signal") if ratio == 200.0 else fail("noise where zero is due")
    evidence.sqnr_db = round(ratio, 2)
    bits = {torch.quint4x2: 4, torch.float16: 16}.get(evidence.run.claim.dtypes.weight_dtype or torch.quint8, 8)
    floor = SQNR_FLOOR_DB[PROFILES[evidence.run.profile].data][bits]
    if _best_sqnr_db(evidence) < floor + 6:
        return skip("the output's grid is too coarse for this signal")
    if evidence.sqnr_db >= floor:
        return PASS
    variant = evidence.run.variant
    beyond = variant is not None and (variant.batch is not None or variant.saturates)
    if evidence.golden is not None and beyond:
        exactly = [output.values for output in evidence.golden.outputs]
        if sqnr_db(exactly, evidence.expected) < floor:
            return skip("the output goes beyond what calibration has seen, and exact arithmetic saturates too")
    return fail(f"SQNR {evidence.sqnr_db:.1f} dB is below {floor:.0f} dB")
