"""Stages and checks of a run whose module is quantized in place."""

import copy
import io
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from conformance.cases.runs import Run
from conformance.cases.workflows import INDIVISIBLE
from conformance.configs.codes import Codes
from conformance.engines.registry import engine
from conformance.engines.workflows import EAGER, WorkflowEngine
from conformance.goldens.golden import Expected, Golden
from conformance.host.threads import COUNTS, most, thread_count
from conformance.models.build import Subject, tensors
from conformance.models.compiled import Compiled
from conformance.models.workflows import (
    Stored,
    interval,
    is_exact,
    is_exported,
    quantized,
    rounding,
    step,
    subject,
    unit,
    workflow,
)
from conformance.results.findings import Finding
from conformance.results.findings.annotations import WEIGHT, NotAnnotated
from conformance.results.findings.stability import RepetitionShape, RepetitionValues
from conformance.results.findings.values import OutputShape
from conformance.results.findings.weights import (
    OutputDtype,
    WeightBlocks,
    WeightCodes,
    WeightScales,
    WeightVanishes,
    WeightZeroPoints,
)
from conformance.stopwatch import Stopwatch

from .comparison import compare_values, differ
from .evidence import Back, Evidence, Expectation, Front, Outcome, outcome, skip
from .recorder import Recorder

OF_WEIGHTS: Mapping[str, Callable[[str, int, int], Finding]] = {"zero points": WeightZeroPoints, "codes": WeightCodes}
"""The findings about what a weight stores, by the words of `Stored.off`, but for blocks and scales."""

THREADS = {f"{count} threads": count for count in COUNTS}
"""The repetitions on several threads, by name: of dyadic data, because sums of others may have another order."""

Copy = Callable[[nn.Module, Subject], nn.Module]
"""Makes a quantized module again, which gives the same outputs, from it and the subject."""


def _saved(model: nn.Module, of: Subject) -> nn.Module:
    """A float module that has loaded the state of a quantized one from a file, as torch loads it by default."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    blank = copy.deepcopy(of.model)
    blank.load_state_dict(torch.load(file), assign=True)
    return blank


def _exported(model: nn.Module, of: Subject) -> nn.Module:
    """The graph of a quantized module."""
    return torch.export.export(model, of.fresh_inputs()).module()


COPIES: Mapping[str, Copy] = {"deepcopy": lambda model, _: copy.deepcopy(model), "state_dict": _saved}
"""The copies of every module, by the name of the repetition."""
EXPORTED: Mapping[str, Copy] = {"torch.export": _exported}
"""Those of default layers: an export takes as long as ten runs."""


def _copies(run: Run) -> Mapping[str, Copy]:
    """The copies of a run's module that are compared with it; none of a program, whose copy is compiled anew."""
    if run.engine != EAGER.name:
        return {}
    return {**COPIES, **EXPORTED} if is_exported(run) else COPIES


def evidence(run: Run, watch: Stopwatch) -> Evidence:
    """Take a run through its stages: quantize, compile, execute, and again from copies."""
    recorder = Recorder(watch)
    of = subject(run)
    model = program = execution = None
    repetitions: dict[str, tuple[Tensor, ...]] = {}
    on = engine(run.engine)
    assert isinstance(on, WorkflowEngine)
    with recorder.stage("prepare"):
        model = quantized(of)
    if model is not None:
        with recorder.stage("lower"):
            program = on.compile(model, of.fresh_inputs())
    if program is not None:
        with recorder.stage("execute"), torch.no_grad():
            execution = on.execute(program, of.fresh_inputs())
    if isinstance(program, Compiled):
        repetitions["first call"] = tuple(tensors(program.first))
    if model is not None and program is not None and execution is not None:
        with recorder.stage("second run"), torch.no_grad():
            repetitions["second run"] = tuple(tensors(program(*of.fresh_inputs())))
        for name, count in THREADS.items() if is_exact(run) else ():
            with recorder.stage(name), torch.no_grad(), thread_count(most(count)):
                repetitions[name] = tuple(tensors(program(*of.fresh_inputs())))
        for name, make in _copies(run).items():
            with recorder.stage(name), torch.no_grad():
                repetitions[name] = tuple(tensors(make(model, of)(*of.fresh_inputs())))
    back = Back(None, program, False, execution, repetitions, recorder.failures)
    stored = None if model is None else Stored.of(model.get_parameter("op.weight"))
    golden = None
    if stored is not None:
        found = interval(of.model, of.inputs[0], workflow(run), stored, unit(run), step(run))
        expected = Expected(found.low, found.high)
        golden = Golden((expected,), ("float",))
    return Evidence(run, Front(of), back, Expectation(golden), quantized=model)


def annotated(of: Evidence) -> Outcome:
    """The weight is replaced by one whose scales, zero points and codes are those of the declared grid."""
    assert of.front.subject is not None
    refused = of.raises("annotated", "prepare")
    if of.run.variant is not None and of.run.variant.name == INDIVISIBLE and refused:
        return outcome(())  # a size that no group divides may be refused
    if refused:
        return outcome(refused)
    assert of.quantized is not None
    stored = Stored.of(of.quantized.get_parameter("op.weight"))
    if stored is None:
        return outcome([NotAnnotated("annotated", WEIGHT, "op")])
    return outcome(
        of_weight(
            of.front.subject.model.get_parameter("op.weight").detach(),
            workflow(of.run).weight,
            stored,
            rounding(of.run),
        )
    )


def of_weight(weight: Tensor, grid: Codes, stored: Stored, error: float) -> Iterator[Finding]:
    """Yield the findings about what a quantized weight stores, whose scales and positions may be off by a relative error."""
    for what, off in stored.off(weight, grid, error).items():
        counts = int(off.count_nonzero()), off.numel()
        if what == "blocks":
            yield WeightBlocks("annotated", stored.scale.numel(), off.numel())
        elif counts[0] and what == "scales":
            yield WeightScales("annotated", *counts, float(off.max()))
        elif counts[0]:
            yield OF_WEIGHTS[what]("annotated", *counts)
    if bool(weight.any()) and not bool(stored.values(weight, grid).any()):
        yield WeightVanishes("annotated")


def lowered(of: Evidence) -> Outcome:
    """The program is made and runs."""
    for stage in ("lower", "execute"):
        if findings := of.raises("lowered", stage):
            return outcome(findings)
    return outcome(()) if of.back.execution is not None else skip("not executed")


def numerics(of: Evidence) -> Outcome:
    """The output has the dtype and shape of the float module's, and every value lies in the interval of exact arithmetic."""
    if of.back.execution is None or of.expectation.golden is None:
        return skip("not executed" if of.back.execution is None else "the weight is not quantized")
    (got,), (expected,) = of.back.execution.outputs, of.expectation.golden.outputs
    if got.values.shape != expected.low.shape:
        return outcome([OutputShape("numerics", 0, tuple(got.values.shape), tuple(expected.low.shape))])
    dtype = str(got.values.dtype).removeprefix("torch.")
    if dtype != of.run.recipe.mapping:
        return outcome([OutputDtype("numerics", 0, dtype, of.run.recipe.mapping)])
    comparison = compare_values(got.values, expected)
    return outcome(comparison.findings, comparison=comparison)


def stable(of: Evidence) -> Outcome:
    """A second run, a copy, a module with the saved state, and an exported one give the same outputs, bit for bit."""
    if of.back.execution is None:
        return skip("not executed")
    raised = partial(of.raises, "stable")
    findings: list[Finding] = [
        finding for name in ("second run", *THREADS, *COPIES, *EXPORTED) for finding in raised(name)
    ]
    (first,) = of.back.execution.outputs
    for name, (again,) in of.back.repetitions.items():
        if again.shape != first.values.shape:
            findings.append(RepetitionShape("stable", name, tuple(again.shape)))
        elif bool((changed := differ(first.values, again)).any()):
            findings.append(RepetitionValues("stable", name, int(changed.sum()), changed.numel()))
    return outcome(findings)


CHECKS: Mapping[str, Callable[[Evidence], Outcome]] = {
    "annotated": annotated,
    "lowered": lowered,
    "numerics": numerics,
    "stable": stable,
}
"""The checks by name, in the order of their outcomes in a row."""
