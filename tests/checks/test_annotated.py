"""The check of annotations, by hand-written annotations: no quantizer is needed."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from torch.fx import Graph, GraphModule

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.checks.annotation import annotated
from conformance.checks.evidence import Evidence, Front
from conformance.errors import Failure
from conformance.models.pt2e import ANNOTATIONS, SHARED, Annotated
from conformance.results.findings.annotations import AnnotatedBeside, AnnotatedOtherwise, NotAnnotated

ACTIVATION, WEIGHT = "int8 from -128 to 127 per tensor", "int8 from -127 to 127 per tensor"
DYNAMIC = f"dynamic {ACTIVATION}"
PARAMETERS = {"op_weight": "op.weight", "op_bias": "op.bias"}
CONV = Annotated("conv2d", {"x": ACTIVATION, "op_weight": WEIGHT, "op_bias": ""}, "", PARAMETERS)
RELU = Annotated("relu", {"conv2d": ""}, ACTIVATION, {})
LINEAR = Annotated("linear", {"x": DYNAMIC, "op_weight": WEIGHT, "op_bias": ""}, "", PARAMETERS)
CAT = Annotated("cat", {"x": ACTIVATION, "y": SHARED}, SHARED, {})


def run(case: str) -> Run:
    return next(run for run in runs(backend("xnnpack")) if run.id == f"xnnpack/{case}/exact@executorch")


def found(case: str, *operators: Annotated) -> list[object]:
    graph = GraphModule({}, Graph())
    graph.meta[ANNOTATIONS] = operators
    return [*annotated(Evidence(run(case), Front(prepared=graph))).findings]


def changed(one: Annotated, inputs: Mapping[str, str] | None = None, output: str | None = None) -> Annotated:
    return replace(one, inputs={**one.inputs, **(inputs or {})}, output=one.output if output is None else output)


RUNS = {
    "fused": ("nn.Conv2d+nn.ReLU/static-qint8/ptq/default", (CONV, RELU)),
    "dynamic": ("nn.Linear/dynamic-qint8/ptq/default", (LINEAR,)),
    "shared": ("torch.cat/static-qint8/ptq/default", (CAT,)),
}


@pytest.mark.parametrize("name", RUNS)
def test_annotations_that_the_claim_asks_for_pass(name: str) -> None:
    case, operators = RUNS[name]
    assert found(case, *operators) == []


@pytest.mark.parametrize(
    ("name", "place", "operators", "finding"),
    [
        ("fused", 0, changed(CONV, {"x": ""}), NotAnnotated("annotated", "input", "x")),
        ("fused", 0, changed(CONV, {"op_weight": ""}), NotAnnotated("annotated", "weight", "op_weight")),
        ("fused", 1, changed(RELU, output=""), NotAnnotated("annotated", "output", "relu")),
        ("fused", 0, changed(CONV, output=ACTIVATION), AnnotatedBeside("annotated", "inner", "conv2d", ACTIVATION)),
        (
            "fused",
            0,
            changed(CONV, {"op_weight": ACTIVATION}),
            AnnotatedOtherwise("annotated", "weight", "op_weight", ACTIVATION, (WEIGHT,)),
        ),
        (
            "fused",
            1,
            changed(RELU, output=SHARED),
            AnnotatedOtherwise("annotated", "output", "relu", SHARED, (ACTIVATION,)),
        ),
        (
            "dynamic",
            0,
            changed(LINEAR, {"x": ACTIVATION}),
            AnnotatedOtherwise("annotated", "input", "x", ACTIVATION, (DYNAMIC,)),
        ),
        (
            "dynamic",
            0,
            changed(LINEAR, output=ACTIVATION),
            AnnotatedBeside("annotated", "output", "linear", ACTIVATION),
        ),
        (
            "shared",
            0,
            changed(CAT, output=ACTIVATION),
            AnnotatedOtherwise("annotated", "output", "cat", ACTIVATION, (SHARED,)),
        ),
    ],
)
def test_another_annotation_is_a_finding(name: str, place: int, operators: Annotated, finding: object) -> None:
    case, whole = RUNS[name]
    assert found(case, *(operators if number == place else one for number, one in enumerate(whole))) == [finding]


def test_a_weight_of_a_norm_is_not_quantized() -> None:
    norm = Annotated("batch_norm", {"conv2d": "", "norm_weight": ""}, ACTIVATION, {"norm_weight": "norm.weight"})
    assert found("nn.Conv2d+nn.BatchNorm2d/static-qint8/qat/default", CONV, norm) == []


def test_a_model_that_was_not_prepared_is_skipped_and_one_that_cannot_run_fails() -> None:
    one = run("nn.Conv2d/static-qint8/ptq/default")
    assert annotated(Evidence(one, Front())).result == "skip"
    failure = Failure.of(RuntimeError("no"))
    assert annotated(Evidence(one, Front(failures={"float": failure}))).result == "fail"


def test_texts_name_the_place() -> None:
    assert NotAnnotated("annotated", "input", "x").text == "input x is not annotated"
    other = AnnotatedOtherwise("annotated", "weight", "op_weight", ACTIVATION, (WEIGHT,))
    assert other.text == f"the weight is annotated as {ACTIVATION}, not {WEIGHT}"
    beside = AnnotatedBeside("annotated", "inner", "conv2d", ACTIVATION)
    assert beside.text == f"conv2d, inside of the pattern, is annotated as {ACTIVATION}, which nothing asks for"
