"""Claims through FX and through PT2E: outcomes, distances, and, where torchao is installed, whole claims."""

import importlib.util
from dataclasses import replace

import pytest
import torch
from invocation import row

from conformance.checks.evidence import Back, Evidence
from conformance.migration.following import Job, distance, followed, jobs, outcome_of
from conformance.models.trace import Execution, Output
from conformance.results.findings import Finding
from conformance.results.findings.annotations import NotAnnotated
from conformance.results.findings.stages import Raises
from conformance.results.findings.structure import RanInFloat
from conformance.results.findings.values import CodesDiffer
from conformance.results.migrations import Distance, Outcome
from conformance.results.rows import Row
from tests.saturation import needs_vnni

installed = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")
SAME, APART = Distance(8, 0, 0.0, 0.0, False), Distance(8, 3, 2.0, 0.1, False)


def judged(*findings: Finding) -> Row:
    failed = {finding.check for finding in findings}
    made: Row = row("F.x", fails=[*failed], findings=findings, checks=dict.fromkeys(failed, "fail"), detail="")
    return made


FINE = judged()
FLOAT = judged(RanInFloat("lowered", ("aten.mul",)))
LEFT = judged(NotAnnotated("annotated", "input", "x"), RanInFloat("lowered", ("aten.mul",)))
REFUSED = judged(Raises("lowered", "lower", "RuntimeError", "no"))
OFF = judged(CodesDiffer("numerics", 0, 1, 8, 3, ()))


@pytest.mark.parametrize(
    ("before", "after", "apart", "expected"),
    [
        (FINE, FINE, SAME, Outcome.KEPT),
        (FINE, FINE, None, Outcome.KEPT),
        (FINE, FINE, APART, Outcome.OTHER),
        (OFF, FINE, APART, Outcome.GAINED),
        (FINE, FLOAT, None, Outcome.FLOAT),
        (FINE, LEFT, None, Outcome.NOT_ANNOTATED),
        (FINE, REFUSED, None, Outcome.REFUSES),
        (FINE, OFF, APART, Outcome.WRONG),
        (OFF, FLOAT, None, Outcome.NEITHER),
    ],
)
def test_rows_decide_the_outcome(before: Row, after: Row, apart: Distance | None, expected: Outcome) -> None:
    assert outcome_of(before, after, apart) is expected


def evidence(*outputs: Output) -> Evidence:
    job = next(jobs(["fbgemm"]))
    return Evidence(run=job, back=Back(execution=Execution((), outputs)))  # type: ignore[arg-type]


def codes(*values: int, scale: float = 0.5, zero_point: int = 10) -> Output:
    stored = torch.tensor(values, dtype=torch.uint8)
    quantized = torch._make_per_tensor_quantized_tensor(stored, scale, zero_point)
    return Output(quantized.dequantize(), quantized)


def test_codes_are_compared_by_what_they_stand_for() -> None:
    shifted = codes(138, 140, scale=0.5, zero_point=138)
    assert distance(evidence(codes(10, 12)), evidence(shifted)) == Distance(2, 0, 0.0, 0.0, in_float=False)
    assert distance(evidence(codes(10, 12)), evidence(codes(10, 13))) == Distance(2, 1, 1.0, 0.5, in_float=False)


def test_a_result_in_float_counts_as_the_code_that_it_rounds_to() -> None:
    near = Output(torch.tensor([0.2, 1.25]))
    assert distance(evidence(codes(10, 12)), evidence(near)) == Distance(2, 0, 0.5, 0.25, in_float=True)
    far = Output(torch.tensor([0.0, 1.3]))
    found = distance(evidence(codes(10, 12)), evidence(far))
    assert found is not None
    assert (found.mismatched, found.steps) == (1, 0.6)


def test_floats_differ_beyond_the_rounding_of_float32() -> None:
    before = Output(torch.tensor([1.0, 100.0]))
    assert distance(evidence(before), evidence(Output(torch.tensor([1.0, 100.00001])))) == Distance(
        2, 0, None, 0.0, True
    )
    found = distance(evidence(before), evidence(Output(torch.tensor([1.5, 100.0]))))
    assert found == Distance(2, 1, None, 0.005, in_float=True)


def test_other_shapes_have_no_distance() -> None:
    assert distance(evidence(codes(1, 2)), evidence(codes(1, 2, 3))) is None
    assert distance(evidence(codes(1)), evidence()) is None


def test_the_engines_of_a_claim_follow_each_other() -> None:
    first, second = [*jobs(["fbgemm"])][:2]
    assert (first.claim, first.engine, second.engine) == (second.claim, "fbgemm", "x86")
    assert len([*jobs()]) == 1045 + 225


def job(claim: str, engine: str) -> Job:
    return next(one for one in jobs([claim.partition("/")[0]]) if one.id == f"{claim}@{engine}")


def test_a_claim_whose_quantizer_is_missing_is_not_executed() -> None:
    if importlib.util.find_spec("torchao") is not None:
        pytest.skip("torchao is installed")
    (found,) = followed([job("fbgemm/nn.Conv2d/static-quint8", "x86")])
    assert found.outcome is Outcome.UNAVAILABLE
    assert "torchao" in found.pt2e


@needs_vnni
@installed
def test_claims_are_followed() -> None:
    chosen = [
        job("fbgemm/nn.Conv2d+nn.ReLU/static-quint8", "x86"),
        job("fbgemm/nni.ConvReLU2d/static-quint8", "x86"),
        job("fbgemm/nn.Embedding/weight-quint8", "x86"),
        job("fbgemm/F.linear/static-quint8", "x86"),
        job("fbgemm/nn.MaxPool2d/static-quint8", "x86"),
    ]
    found = {one.claim.split("/")[1]: one for one in followed(chosen)}
    assert {name: one.outcome for name, one in found.items()} == {
        "nn.Conv2d+nn.ReLU": Outcome.KEPT,
        "nni.ConvReLU2d": Outcome.KEPT,
        "nn.Embedding": Outcome.NOT_OFFERED,
        "F.linear": Outcome.NOT_ANNOTATED,
        "nn.MaxPool2d": Outcome.FLOAT,
    }
    kept = found["nn.Conv2d+nn.ReLU"]
    assert kept.distance is not None
    assert (kept.distance.mismatched, kept.distance.in_float) == (0, True)
    assert kept.ratio is not None
    assert kept.ratio > 0
    assert replace(found["nni.ConvReLU2d"], claim="", distance=None).pattern == "nn.Conv2d+nn.ReLU"
