"""Symptoms of sweeps over all codes: a lowered model whose scales and zero points are set, executed on one code."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from conformance.goldens.golden import compute, golden_of, qparams_by_name
from conformance.models import fx
from conformance.models.qparams import operands_of, qparams_buffers, takes_qparams
from conformance.models.trace import Execution, execute
from conformance.oracle import NotCovered, Qparams
from conformance.properties.codes.settings import result_of
from conformance.results.findings import Finding
from conformance.results.findings.codes import (
    SweptCodes,
    SweptElement,
    SweptPlaces,
    SweptQparams,
    SweptRaises,
    SweptScale,
    TensorQparams,
)

from .candidate import Candidate, Data, literal, number
from .lines import least_lines
from .symptoms import Symptom, guarded
from .text import ending, executed
from .values import CUSTOM, float_model_of, indexed

Setting = tuple[tuple[TensorQparams, ...], TensorQparams]
"""The qparams of the operands and of the output."""


def element_of(finding: Finding) -> SweptElement | None:
    """The element that a finding describes, the worst one; None for a finding about whole calls."""
    if isinstance(finding, SweptCodes):
        return finding.elements[0]
    if isinstance(finding, SweptScale):
        return finding.element
    return finding.second if isinstance(finding, SweptPlaces) else None


def setting_of(finding: Finding) -> Setting:
    """The qparams with which a finding shows."""
    if isinstance(finding, SweptRaises):
        return finding.operands, finding.output
    if isinstance(finding, SweptQparams):
        return finding.operands, finding.expected
    element = element_of(finding)
    assert element is not None
    return element.operands, element.got.tensor


def constant(candidate: Candidate, finding: Finding) -> Candidate:
    """The candidate with the code of the finding's element in every place of each input."""
    element = element_of(finding)
    codes = element.codes if element is not None else ()
    operands, _ = setting_of(finding)
    if not codes or len(candidate.inputs) != len(codes):
        codes = tuple(one.zero_point + 1 for one in operands)
    inputs = []
    for one, code, operand in zip(candidate.inputs, codes, operands, strict=True):
        value = torch.full(one.shape, (code - operand.zero_point) * operand.scale)
        inputs.append(Data("literal", one.shape, values=value))
    return replace(candidate, inputs=tuple(inputs), calibration=None)


def output_lines(lowered: GraphModule, output: TensorQparams) -> str:
    """The lines that set scale and zero point of a lowered model's output; empty if it takes none."""
    node = result_of(lowered)
    if not takes_qparams(lowered, node):
        return ""
    values = (("scale", repr(output.scale)), ("zero_point", str(output.zero_point)))
    if node.op == "call_module":
        module = lowered.get_submodule(str(node.target))
        return "".join(
            _assigned(f"lowered.{node.target}.{name}", value, getattr(module, name)) for name, value in values
        )
    buffers = {id(buffer): name for name, buffer in lowered.named_buffers()}
    found = [buffers[id(buffer)] for buffer in qparams_buffers(lowered, node)]
    return "".join(f"lowered.{name}.fill_({value})\n" for name, (_, value) in zip(found, values, strict=True))


def _assigned(path: str, value: str, old: Any) -> str:
    return f"{path}.fill_({value})\n" if isinstance(old, Tensor) else f"{path} = {value}\n"


def operand_lines(lowered: GraphModule, operands: Iterable[TensorQparams]) -> str:
    """The lines that set scale and zero point of each input of a lowered model."""
    calls: dict[str, Node] = operands_of(lowered)
    lines = ""
    for one in operands:
        scale, zero_point = (argument.target for argument in calls[one.name].args[1:3] if isinstance(argument, Node))
        lines += f"lowered.{scale}.fill_({one.scale!r})\nlowered.{zero_point}.fill_({one.zero_point})\n"
    return lines


class Sweeping(Symptom[Finding]):
    """A kernel gives a wrong code, or raises, for certain codes, scales and zero points."""

    data_matter = True

    @property
    def title(self) -> str:
        if isinstance(self.finding, SweptRaises):
            return "certain scales and zero points raise"
        if isinstance(self.finding, SweptScale):
            return "a call depends on the scale of the call before"
        if isinstance(self.finding, SweptPlaces):
            return "equal elements have unequal results"
        return "wrong codes for certain scales and zero points"

    @property
    def expectation(self) -> str:
        return (
            "Expected: the exact result, but for rounding, whatever the scales and zero points of input and output are."
        )

    def adapted(self, candidate: Candidate) -> Candidate:
        return constant(candidate, self.finding)

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        finding, (operands, output) = self.finding, setting_of(self.finding)
        custom = CUSTOM if isinstance(finding, SweptQparams) else ""
        source = least_lines(self.run, candidate)
        lines = source.prepared(custom) + source.lower
        _, scope = executed(lines.replace(custom, "") if custom else lines)
        lowered, call = scope["lowered"], f"lowered({source.arguments()})"
        lines += operand_lines(lowered, operands)
        last = output_lines(lowered, output)
        if isinstance(finding, SweptRaises):
            yield lines + last + guarded(self.check, f"{call}\n")
        elif isinstance(finding, SweptQparams):
            expected = f"({number(finding.expected.scale)}, {finding.expected.zero_point})"
            got = f"y = {call}\nexpected, got = {expected}, (round(y.q_scale(), 9), y.q_zero_point())\n"
            yield lines + last + got + ending(self.check, "got != expected", "scale or zero point of the output")
        elif isinstance(finding, SweptPlaces):
            got = f'got, expected = {call}.unique(), "one value"\n'
            yield lines + last + got + ending(self.check, "len(got) > 1", "equal elements differ")
        else:
            before = f"{output_lines(lowered, finding.before)}{call}\n" if isinstance(finding, SweptScale) else ""
            yield from self._values(candidate, lines + before + last, f"got = {call}")

    def _values(self, candidate: Candidate, lines: str, got: str) -> Iterator[str]:
        """Bodies that compare an element with exact arithmetic, if that is certain of it."""
        expected = exact(self, candidate)
        element = element_of(self.finding)
        if expected is None or element is None:
            return
        index = tuple(min(place, size - 1) for place, size in zip(element.index, expected.shape, strict=True))
        lines += f"{got}{indexed(index)}\nexpected = {literal(expected[index])}  # exact arithmetic\n"
        yield lines + ending(self.check, "not torch.isclose(got, expected)", "the value")


def exact(symptom: Symptom[Any], candidate: Candidate) -> Tensor | None:
    """What exact arithmetic gives (float32) with the qparams of a finding; None if some element is a tie or uncertain."""
    operands, output = setting_of(symptom.finding)
    subject = float_model_of(symptom, candidate)
    _, scope = executed(least_lines(symptom.run, candidate).prepared())
    reference = fx.reference(scope["prepared"], scope["config"])
    observed = replace(subject, inputs=subject.calibration)
    execution: Execution = execute(reference, observed.fresh_inputs())
    qparams = qparams_by_name(reference, execution, observed)
    for one in (*operands, output):
        if one.name in qparams:
            zero_point = torch.tensor([one.zero_point])
            qparams[one.name] = Qparams(qparams[one.name].grid, torch.tensor([one.scale]), zero_point)
    try:
        (expected,) = golden_of(compute(subject, qparams)).outputs
    except NotCovered:
        return None
    return expected.values.float() if torch.equal(expected.low, expected.high) else None
