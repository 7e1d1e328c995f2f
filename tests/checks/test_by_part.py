"""The finding that each row of a dynamic activation has qparams of its own, by outputs that exact arithmetic gives."""

from dataclasses import replace

import torch
from torch import Tensor

from conformance.checks.evidence import Back, Evidence, Expectation, Front
from conformance.checks.numerics import numerics
from conformance.goldens.golden import compute
from conformance.models import build
from conformance.models.trace import Execution, Output
from conformance.results.findings.values import QuantizedByPart, ValuesDiffer
from tests.runs_by_id import run

EXECUTORCH = "executorch/nn.Linear/dynamic-qint8/ptq/per_channel/exact@executorch"
NATIVE = "fbgemm/nn.Linear/dynamic-quint8/ptq/per_channel/exact@fbgemm"


def judged(name: str, part: str, off: float = 0.0) -> list[object]:
    """The findings of numerics for outputs whose activation is quantized by part, with an error added."""
    one = run(name)
    subject = build.subject(one)
    # rows of different ranges, on no common grid, and without zero points near a tie
    x = subject.inputs[0] * torch.tensor([1.0, 0.37, 0.11, 0.83]).reshape(-1, 1)
    x = torch.minimum(x, 0.71 * x.abs().amax(1, keepdim=True))
    subject = replace(subject, inputs=(x,), calibration=(x,))
    (values,) = compute(subject, scheme=replace(one.recipe.scheme, dynamic_parts=part)).outputs
    assert isinstance(values, Tensor)
    execution = Execution((), (Output(values.float() + off),))
    evidence = Evidence(one, Front(subject=subject), Back(execution=execution), Expectation.of(compute(subject)))
    return [*numerics(evidence).findings]


def test_values_by_tensor_conform() -> None:
    assert judged(EXECUTORCH, "tensor") == []


def test_values_by_row_are_named_so() -> None:
    (finding,) = judged(EXECUTORCH, "row")
    assert isinstance(finding, QuantizedByPart)
    assert finding.part == "row"
    assert finding.text.endswith("they are those of an activation that is quantized by row")


def test_any_other_values_are_just_wrong() -> None:
    (finding,) = judged(EXECUTORCH, "row", off=0.05)
    assert type(finding) is ValuesDiffer


def test_native_kernels_have_one_range_for_all_rows() -> None:
    finding, *_ = judged(NATIVE, "row")
    assert type(finding) is ValuesDiffer
