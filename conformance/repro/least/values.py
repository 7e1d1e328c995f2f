"""Symptoms of wrong outputs: held to the float model, or to literals that the oracle computed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from conformance.checks.comparison import Place, compare_outputs
from conformance.checks.evidence import exact_positions
from conformance.checks.tolerances import tolerance
from conformance.goldens.golden import Expected, compute, golden_of, qparams_by_name
from conformance.host.poison import fresh_memory_holds
from conformance.models import fx
from conformance.models.build import Subject, float_outputs
from conformance.models.trace import execute
from conformance.oracle import NotCovered
from conformance.results.findings import Finding
from conformance.results.findings.values import CodesDiffer, FloatShape, OutputQparams, OutputShape, ValuesDiffer
from conformance.results.profiles import INITIALIZED

from .candidate import Candidate, literal, number
from .lines import TO_REFERENCE, LeastFxLines, least_lines
from .symptoms import Symptom, output_paths
from .text import ending, executed

MOST_ELEMENTS = 12
"""Elements of an output that a script compares as a whole. Of a larger one it compares the worst element."""

STEPS = 1.5
"""Steps that a code may be from the float model's result: half of one for its rounding, and one for those of the operands."""

CUSTOM = "PrepareCustomConfig().set_output_quantized_indexes([0]), "


@dataclass(frozen=True, eq=False)
class Measured:
    """The first wrong output of a candidate: its number, the finding about it, what the model gave (float32), what exact
    arithmetic gives, and what the float model gives, if it may be compared with that."""

    output: int
    finding: Finding
    got: Tensor
    expected: Expected
    literal: Tensor
    float_model: Tensor | None

    @property
    def step(self) -> float:
        return self.expected.scale


def float_model_of(symptom: Symptom[Any], candidate: Candidate) -> Subject:
    """The float model of a candidate with its data."""
    run = symptom.run
    _, scope = executed(least_lines(run, candidate).built)
    inputs = tuple(one.tensor for one in candidate.inputs)
    calibration = tuple(one.tensor for one in candidate.calibration or candidate.inputs)
    return Subject(run, None, None, scope["model"], calibration, inputs)


def measured(symptom: Symptom[Any], candidate: Candidate) -> Measured | None:
    """Execute a candidate and compare it with the oracle. None if it conforms, or the oracle is not certain."""
    run = symptom.run
    subject = float_model_of(symptom, candidate)
    _, scope = executed(least_lines(run, candidate).prepared())
    reference = fx.reference(scope["prepared"], scope["config"])
    reference_execution = execute(reference, subject.fresh_inputs())
    observed, observed_execution = subject, reference_execution
    if not all(x.numel() for x in subject.inputs):  # empty tensors are equal, whichever of them is quantized
        observed = replace(subject, inputs=subject.calibration)
        observed_execution = execute(reference, observed.fresh_inputs())
    try:
        answer = compute(subject, qparams_by_name(reference, observed_execution, observed))
    except NotCovered:
        return None
    if not answer.certain:
        return None
    golden, execution = golden_of(answer), reference_execution
    if symptom.check != "reference":
        with fresh_memory_holds(0x55 if candidate.perturbed else 0xFF):
            execution = execute(fx.lower(scope["prepared"], scope["config"]), subject.fresh_inputs())
    # data of scripts are not dyadic
    allowed = tolerance(replace(run, profile=INITIALIZED.name), golden=golden)
    floats = float_outputs(subject)
    if len(execution.outputs) != len(golden.outputs):
        return None
    for number_, (got, expected) in enumerate(zip(execution.outputs, golden.outputs, strict=True)):
        exact = partial(exact_positions, answer, number_)
        comparison = compare_outputs(got, expected, allowed, exact, Place(symptom.check, number_))
        if comparison.findings:
            finding = comparison.findings[0]
            values = _nearest(got.quantized, got.values, expected, allowed.steps)
            ideal = floats[number_] if _agree(floats[number_], expected) else None
            return Measured(number_, finding, got.values, expected, values, ideal)
    return None


def _nearest(quantized: Tensor | None, got: Tensor, expected: Expected, steps: int) -> Tensor:
    """The allowed values (float32) that are nearest to those of an execution: at a tie, either neighbour is allowed."""
    if quantized is None or got.shape != expected.low.shape or not expected.quantized:
        return expected.values.float()
    codes = quantized.int_repr().int()
    allowed = torch.maximum(torch.minimum(codes, expected.high.int() + steps), expected.low.int() - steps)
    return ((allowed - expected.zero_point).double() * expected.scale).float()


def _agree(float_output: Tensor, expected: Expected) -> bool:
    """Whether the float model's result is within a step of exact arithmetic, with which the engine is compared."""
    if not expected.quantized or float_output.shape != expected.low.shape:
        return False
    return bool(((float_output.double() - expected.values).abs() <= expected.scale).all())


def indexed(index: Sequence[int]) -> str:
    return f"[{', '.join(map(str, index))}]" if index else ""


class WrongValues(Symptom[Finding]):
    """An output differs from exact arithmetic by more than rounding."""

    data_matter = True
    title = "wrong values"
    expectation = "Expected: the result of the float model, but for rounding."

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        found = measured(self, candidate)
        if found is None:
            return
        path = output_paths(self.run, candidate)[found.output]
        if isinstance(found.finding, OutputShape):
            yield self._body(candidate, "tuple({}.shape)", path, None, "got != expected", "the shape")
        elif isinstance(found.finding, OutputQparams):
            yield self._qparams(candidate, found.finding)
        elif isinstance(found.finding, CodesDiffer | ValuesDiffer):
            small = found.got.numel() <= MOST_ELEMENTS
            index = "" if small or candidate.perturbed else indexed(found.finding.elements[0].index)
            if found.float_model is not None and self.run.flow == "ptq":
                bound = f"{number(float(f'{STEPS * found.step:.2g}'))}  # {STEPS} steps of the output"
                greatest = "(got - expected).abs()" + ("" if index else ".max()")
                yield self._body(candidate, "{}" + index, path, None, f"{greatest} > {bound}", "the values")
            values = found.literal[found.finding.elements[0].index] if index else found.literal
            condition = "not torch.allclose(got, expected)"
            yield self._body(candidate, "{}" + index, path, literal(values), condition, "the values")

    def _body(self, candidate: Candidate, form: str, path: str, expected: str | None, condition: str, text: str) -> str:
        """A body that compares what `form` makes of an output with `expected`, or with the float model's if it is None."""
        source = least_lines(self.run, candidate)
        given = source.arguments()
        lines = source.built
        if expected is None:
            lines += f"expected = {form.format(f'model({given}){path}')}\n"
        lines += source.prepare() + source.calibrate + self._lower(source)
        lines += source.perturb + source.perturbed(0x55 ^ 0xFF)
        lines += f"got = {form.format(f'lowered({given}){path}')}\n"
        if expected is not None:
            lines += f"expected = {expected}{'  # exact arithmetic' if len(expected) < 90 else ''}\n"
        return lines + ending(self.check, condition, text)

    def _lower(self, lines: LeastFxLines) -> str:
        """The lines that bind `lowered`, which is the reference model if the finding is about that."""
        return f"lowered = {TO_REFERENCE}" if self.check == "reference" else lines.lower

    def _qparams(self, candidate: Candidate, finding: OutputQparams) -> str:
        """A body that compares scale and zero point of an output that is left quantized with those that were observed."""
        source = least_lines(self.run, candidate)
        return (
            f"{source.prepared(CUSTOM)}{self._lower(source)}y = lowered({source.arguments()})\n"
            f"expected = ({number(finding.expected_scale)}, {finding.expected_zero_point}, "
            f"torch.{finding.expected_dtype})  # as observed\n"
            f"got = (round(y.q_scale(), 9), y.q_zero_point(), y.dtype)\n"
            + ending(self.check, "got != expected", "scale, zero point or dtype of the output")
        )


class FarFromFloat(Symptom[Finding]):
    """An output is so far from the float model's that its SQNR is low, whatever exact arithmetic gives."""

    data_matter = True
    title = "far from the float model"
    expectation = "Expected: the result of the float model, but for rounding."

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        lines = least_lines(self.run, candidate)
        given = lines.arguments()
        form, condition = "{}", "(got - expected).abs().max() > expected.abs().max() / 4"
        if isinstance(self.finding, FloatShape):
            form, condition = "tuple({}.shape)", "got != expected"
        for path in output_paths(self.run, candidate):
            yield (
                f"{lines.built}expected = {form.format(f'model({given}){path}')}\n"
                f"{lines.prepare()}{lines.calibrate}{lines.lower}"
                f"got = {form.format(f'lowered({given}){path}')}\n"
                + ending(self.check, condition, "not the result of the float model")
            )
