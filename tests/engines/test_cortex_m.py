"""The Cortex-M engine. It runs in `tox -e pt2e-tosa` alone, but for what missing packages mean."""

import importlib.util

import pytest
from torch.fx import GraphModule

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.checks.judge import Judge
from conformance.engines import cortex_m
from conformance.engines.registry import engine
from conformance.models import apis, build, pt2e
from conformance.repro.execution import execute
from conformance.repro.script import script
from conformance.results.verdicts import Verdict

missing = importlib.util.find_spec("tosa_serializer") is None
installed = pytest.mark.skipif(missing, reason="tosa-tools, which the quantizer needs, is not installed")
LINEAR = "nn.Linear+nn.ReLU/static-qint8/ptq/default"


def run(case: str) -> Run:
    return next(run for run in runs(backend("cortexm"), ["cortex-m"]) if run.id == f"cortexm/{case}/exact@cortex-m")


@pytest.mark.skipif(not missing, reason="tosa-tools is installed")
def test_without_its_packages_the_engine_is_unavailable() -> None:
    assert engine("cortex-m").unavailable()


@installed
@pytest.mark.parametrize(
    ("case", "kernel"),
    [
        (LINEAR, "cortex_m.quantized_linear"),
        ("torch.add/static-qint8/ptq/default", "cortex_m.quantized_add"),
        ("nn.AvgPool2d/static-qint8/ptq/default", "cortex_m.quantized_avg_pool2d"),
    ],
)
def test_a_claim_that_holds_conforms(case: str, kernel: str) -> None:
    row, unusable = Judge().row(run(case))
    assert (row.verdict, row.detail, unusable) == (Verdict.CONFORMS, "", "")
    assert kernel in row.kernels


@installed
def test_programs_are_the_same_without_the_shortcuts() -> None:
    subject = build.subject(run(LINEAR))
    prepared = apis.of(subject.run.backend).prepare(subject)
    apis.of(subject.run.backend).calibrate(prepared, subject)
    model = pt2e.converted(prepared)
    fast = cortex_m.CortexMEngine().lower_for(model, subject.fresh_inputs())
    slow = cortex_m.lower_to_cortex_m(model, subject.fresh_inputs())
    assert isinstance(fast, GraphModule)
    assert isinstance(slow, GraphModule)
    assert fast.code.replace("arguments_0", "x") == slow.code  # the name of the input aside


@installed
def test_images_are_in_the_memory_format_that_the_quantizer_asks_for() -> None:
    variant = run("nn.Conv2d/static-qint8/ptq/default").variant
    assert variant is not None
    assert {spec.layout for spec in variant.operands.values()} == {"channels_last"}


@installed
def test_a_script_shows_what_its_run_showed() -> None:
    case = run("nn.Conv2d+nn.Hardtanh/static-qint8/ptq/default")
    row, _ = Judge().row(case)
    assert "numerics" in row.failed
    assert "DEVIATES numerics" in execute(script(case, row, None)).output
