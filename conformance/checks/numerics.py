"""Checks of values: equality with the golden, and SQNR against the float model."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from conformance.cases.runs import Run
from conformance.configs.engines import ENGINE_TABLE
from conformance.goldens.golden import compute
from conformance.models.build import Subject
from conformance.models.trace import Execution, qparams_of
from conformance.oracle.scheme import PARTS, Scheme
from conformance.results.findings import Finding
from conformance.results.findings.values import (
    FloatShape,
    InSevenBits,
    LowSqnr,
    NoiseWithoutSignal,
    NotFinite,
    OutputCount,
    QuantizedByPart,
    ValuesDiffer,
)
from conformance.results.profiles import PROFILES

from .comparison import Comparison, Place, compare_outputs
from .evidence import Evidence, Expectation, Outcome, outcome, skip
from .tolerances import tolerance

SQNR_FLOOR_DB = {"dyadic": {16: 40.0, 8: 20.0, 4: 8.0}, "normal": {16: 60.0, 8: 24.0, 4: 16.0}}
"""Least SQNR in dB by the profile's data and the bit width of weights.

An ideal b-bit quantizer of uniform data gives 6.02 b dB, of normal data that it clips at four sigmas 6.02 b - 7.3 dB (Gersho
and Gray, "Vector Quantization and Signal Compression", 1992, section 5.5). Input, weight and output are all quantized, which
costs 5 dB; some engines have 7 bits for activations, another 6. For dyadic data, a scale rounded up to a power of two costs
up to 6 dB; for normal data, an average on its input's grid loses up to 9 dB.
"""


def wrong_shape(evidence: Evidence) -> FloatShape | None:
    """The finding of `accuracy` about the first output whose shape is not the float model's, or None.

    Values of such an output are not compared, because they may differ from run to run.
    """
    assert evidence.back.execution is not None
    for got, expected in zip(evidence.back.execution.outputs, evidence.front.float_outputs, strict=False):
        if got.values.shape != expected.shape:
            return FloatShape("accuracy", tuple(got.values.shape), tuple(expected.shape))
    return None


def _other_terms(run: Run) -> Iterator[tuple[Scheme, Callable[..., Finding]]]:
    """Yield schemes in whose terms the values of a dynamic run may be, with the finding that says so, the likeliest first.

    Some dynamic kernels and modules have a reduced range on every engine, whatever the QConfig. Native kernels choose qparams
    for a whole tensor; others may do so for each row, item or pixel.
    """
    scheme = run.recipe.scheme
    if not ENGINE_TABLE[run.engine].native:
        for part in PARTS[1:]:
            yield replace(scheme, dynamic_parts=part), partial(QuantizedByPart, part=part)
    grid = scheme.activation
    if grid is not None and (grid.low, grid.high) == (0, 255):
        yield replace(scheme, activation=replace(grid, high=127)), InSevenBits


def explained(evidence: Evidence, comparison: Comparison, subject: Subject | None, execution: Execution) -> Comparison:
    """The comparison with findings that say in which other terms values of a dynamic run are right, as far as exact
    arithmetic is certain."""
    differ = [finding for finding in comparison.findings if isinstance(finding, ValuesDiffer)]
    if evidence.run.recipe.kind != "dynamic" or not differ or subject is None:
        return comparison
    for scheme, stated in _other_terms(evidence.run):
        # the qparams of weights are those of the run; activations get theirs at each call
        answer = compute(subject, evidence.expectation.qparams(), scheme)
        if not (answer.certain and compare_execution(evidence, execution, "numerics", Expectation.of(answer)).findings):
            return replace(comparison, findings=tuple(stated(**vars(finding)) for finding in differ))
    return comparison


def compare_execution(
    evidence: Evidence, execution: Execution, check: str, expectation: Expectation | None = None
) -> Comparison:
    """Compare the outputs of an execution, of the engine or of the reference model, with the golden's. `check` is the check
    that the finding belongs to, `expectation` that of the execution if it is not the run's."""
    expectation = evidence.expectation if expectation is None else expectation
    assert expectation.golden is not None
    outputs, golden = execution.outputs, expectation.golden.outputs
    if len(outputs) != len(golden):
        return Comparison(findings=(OutputCount(check, len(outputs), len(golden)),))
    allowed = tolerance(evidence.run, golden=expectation.golden)
    total = Comparison()
    for number, (got, expected) in enumerate(zip(outputs, golden, strict=True)):
        exact = partial(expectation.exact, number)
        total = total.plus(compare_outputs(got, expected, allowed, exact, Place(check, number)))
    return total


def numerics(evidence: Evidence) -> Outcome:
    """The engine's codes are those of the golden, ties aside; scale and zero point are equal.

    Outputs for further inputs are compared if those for the run's own conform.
    """
    if evidence.back.execution is None:
        return skip("not executed")
    if evidence.expectation.golden is None:
        return skip("there is no golden")
    execution = evidence.back.execution
    comparison = compare_execution(evidence, execution, "numerics")
    comparison = explained(evidence, comparison, evidence.front.subject, execution)
    for further in evidence.further:
        if comparison.findings:
            break
        if further.execution is not None:
            compared = compare_execution(evidence, further.execution, "numerics", further.expectation)
            compared = explained(evidence, compared, further.subject, further.execution)
            comparison = comparison.plus(compared)
            if compared.findings:
                return outcome((*compared.findings, *further.findings("numerics")), comparison=comparison)
    return outcome(comparison.findings, comparison=comparison)


def _best_sqnr_db(execution: Execution, float_outputs: Iterable[Tensor]) -> float:
    """SQNR in dB of an ideal quantizer on the outputs' grids: its noise is scale**2 / 12 for each element.

    W. R. Bennett, "Spectra of quantized signals", Bell System Technical Journal 27, 1948.
    """
    signal = noise = 0.0
    for got, expected in zip(execution.outputs, float_outputs, strict=False):
        signal += float(expected.double().pow(2).sum())
        if got.quantized is not None:
            noise += expected.numel() * float(qparams_of(got.quantized)[0].max()) ** 2 / 12
    return 10 * math.log10(signal / noise) if noise and signal else math.inf


def sqnr_db(values: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """Signal-to-quantization-noise ratio of outputs against those of the float64 model, in dB.

    200 without noise; NaN where the noise is not finite; minus infinity for noise without signal.
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
    """SQNR of the engine's output against the unfused float64 model is above the floor for its data and bit width."""
    execution, expected, run = evidence.back.execution, evidence.front.float_outputs, evidence.run
    if execution is None:
        return skip("not executed")
    if finding := wrong_shape(evidence):
        return outcome([finding])
    ratio = sqnr_db((output.values for output in execution.outputs), expected)
    if math.isnan(ratio):
        return outcome([NotFinite("accuracy")])
    if not any(bool(output.any()) for output in expected):
        return skip("no signal") if ratio == 200.0 else outcome([NoiseWithoutSignal("accuracy")])
    ratio = round(ratio, 2)
    bits = {torch.quint4x2: 4, torch.float16: 16}.get(run.claim.dtypes.weight_dtype or torch.quint8, 8)
    floor = SQNR_FLOOR_DB[PROFILES[run.profile].data][bits]
    if _best_sqnr_db(execution, expected) < floor + 6:
        return skip("the output's grid is too coarse for this signal", ratio)
    if ratio >= floor:
        return outcome((), sqnr_db=ratio)
    golden, variant = evidence.expectation.golden, run.variant
    uncalibrated = variant is not None and (variant.batch is not None or variant.saturates)
    if golden is not None and uncalibrated and sqnr_db([y.values for y in golden.outputs], expected) < floor:
        return skip("the output goes beyond what calibration has seen, and exact arithmetic saturates too", ratio)
    return outcome([LowSqnr("accuracy", ratio, floor)], sqnr_db=ratio)
