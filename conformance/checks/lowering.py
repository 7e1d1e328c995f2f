"""Checks that the engine ran quantized kernels, for what the mapping quantizes and for nothing else."""

from collections.abc import Iterator

from conformance.cases.runs import Run
from conformance.models.trace import CONVERSIONS, VIEWS, Execution
from conformance.results.findings import Finding
from conformance.results.findings.stages import Raises
from conformance.results.findings.structure import (
    ConvertsInside,
    LeftQuantized,
    NoQuantizedKernel,
    QuantizedUnasked,
    RanInFloat,
)
from conformance.results.profiles import PROFILES

from .evidence import Evidence, Outcome, outcome, skip

CHECK = "lowered"
EARLIER = {"float": "matched", "prepare": "observed", "calibrate": "observed"}
"""Stages before lowering, with the check that reports their exceptions where a profile has it."""


def lowered(evidence: Evidence) -> Outcome:
    """The engine ran quantized kernels for the whole pattern, and no float compute operator."""
    reported = {*PROFILES[evidence.run.profile].checks}
    unreported = [stage for stage, check in EARLIER.items() if check not in reported]
    for stage in (*unreported, "lower", "execute"):
        if findings := evidence.raises(CHECK, stage):
            return outcome(findings)
    if evidence.back.execution is None:
        return skip("not executed")
    found = [*findings_of(evidence.run, evidence.back.execution)]
    for further in () if found else evidence.further:
        if further.failure is not None:
            raises = Raises(CHECK, "execute", further.failure.exception, further.failure.message)
            return outcome((raises, *further.findings(CHECK)))
    return outcome(found)


def asked(evidence: Evidence) -> Outcome:
    """No quantized kernel computes what the mapping leaves in float."""
    execution = evidence.back.execution
    if execution is None:
        return skip("not executed")
    between = execution.kernels[_between(evidence.run, execution)]
    names = [kernel.name for kernel in between if kernel.quantized and kernel.name not in CONVERSIONS | VIEWS]
    return outcome([QuantizedUnasked("asked", tuple(dict.fromkeys(names)))] if names else [])


def _between(run: Run, execution: Execution) -> slice:
    """The kernels of a pattern that the mapping leaves in float: those between its neighbours', of which each has one that is
    quantized. None are where a neighbour's is not."""
    assert run.variant is not None
    context, kernels = run.variant.context, execution.kernels
    quantized = [n for n, kernel in enumerate(kernels) if kernel.quantized and kernel.name not in CONVERSIONS]
    if not context.unasked or len(quantized) < len(context.neighbours):
        return slice(0)
    return slice(quantized[len(context.before) - 1] + 1, quantized[-len(context.after)])


def findings_of(run: Run, execution: Execution) -> Iterator[Finding]:
    """Yield the findings about the kernels of an execution."""
    static, kernels = run.recipe.kind == "static", [*execution.kernels]
    if run.variant is not None:
        del kernels[_between(run, execution)]
    in_float = [k.name for k in kernels if (k.in_float if static else k.computes_in_float)]
    if run.variant is not None:
        allowed = {name for neighbour in run.variant.context.neighbours for name in neighbour.in_float}
        in_float = [name for name in in_float if name.rpartition(".")[2] not in allowed]
    if in_float:
        yield RanInFloat(CHECK, tuple(dict.fromkeys(in_float)))
    if not static and not execution.names():
        yield NoQuantizedKernel(CHECK)
    if left := tuple(number for number, output in enumerate(execution.outputs) if output.left_quantized):
        yield LeftQuantized(CHECK, left)
    if execution.nested and static:
        yield ConvertsInside(CHECK, tuple(dict.fromkeys(execution.nested)))
