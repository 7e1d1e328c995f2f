"""PT2E with XNNPACKQuantizer. Tests that need torchao and executorch run in `tox -e pt2e-xnnpack` alone."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from invocation import row
from torch.fx import GraphModule

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.checks.judge import Judge
from conformance.configs.quantizer import Declaration, QuantizerSpec
from conformance.configs.xnnpack import SHARES
from conformance.engines import decomposed
from conformance.errors import UsageError
from conformance.models import apis, build, pt2e
from conformance.models.observers import is_observer
from conformance.paths import ROOT
from conformance.repro.execution import execute
from conformance.repro.script import script
from conformance.results.findings.annotations import NotAnnotated
from conformance.results.verdicts import Verdict
from conformance.shortcuts import without

installed = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("executorch", "torchao")),
    reason="executorch or torchao is not installed",
)
BN = "nn.Conv2d+nn.BatchNorm2d+nn.ReLU/static-qint8/qat/default"
LINEAR = "nn.Linear/static-qint8/ptq/default"
DYNAMIC = "nn.Linear/dynamic-qint8/ptq/default"
CAT = "torch.cat/static-qint8/ptq/default"


def run(case: str, profile: str = "exact") -> Run:
    return next(run for run in runs(backend("xnnpack")) if run.id == f"xnnpack/{case}/{profile}@executorch")


def prepared(case: str) -> tuple[build.Subject, GraphModule]:
    subject = build.subject(run(case))
    model = apis.of(subject.run.backend).prepare(subject)
    apis.of(subject.run.backend).calibrate(model, subject)
    return subject, model


def test_a_quantizer_that_is_not_installed_is_named() -> None:
    missing = QuantizerSpec("Other()", {"Other": "no_such_package.quantizer"}, "")
    assert "no_such_package" in (pt2e.unavailable(missing) or "")
    reason = apis.of(backend("xnnpack")).unavailable(backend("xnnpack"))
    assert (reason is None) == all(importlib.util.find_spec(name) is not None for name in ("executorch", "torchao"))
    assert apis.of(backend("fbgemm")).unavailable(backend("fbgemm")) is None


@installed
def test_declarations_are_the_supported_patterns_of_the_quantizer() -> None:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer

    theirs = {one.name: (one.is_dynamic, one.is_qat) for one in XNNPACKQuantizer.SUPPORTED_PATTERNS}
    theirs[SHARES] = (False, False)
    ours: dict[str, tuple[bool, bool]] = {}
    for claim in backend("xnnpack").claims:
        assert isinstance(claim.entry, Declaration)
        dynamic, trained = any(one.is_dynamic for one in claim.entry.dtype_configs), claim.entry.flows == ("qat",)
        assert ours.setdefault(claim.entry.name, (dynamic, trained)) == (dynamic, trained)
    assert ours == theirs


@installed
@pytest.mark.parametrize("case", [LINEAR, CAT, BN, "nn.ConvTranspose2d/static-qint8/ptq/per_channel"])
def test_a_claim_that_holds_conforms(case: str) -> None:
    row, unusable = Judge().row(run(case))
    assert (row.verdict, row.detail, unusable) == (Verdict.CONFORMS, "", "")
    assert row.kernels[-1].startswith("xnnpack.")


@installed
def test_annotated_but_computed_in_float_is_a_finding() -> None:
    row, _ = Judge().row(run("torch.mul+nn.ReLU/static-qint8/ptq/default"))
    assert row.checks["annotated"] == "pass"
    assert row.detail == "lowered: ran in float: xnnpack.Multiply"


@installed
def test_what_is_declared_and_not_annotated_is_a_finding() -> None:
    row, _ = Judge().row(run("nn.Conv1d/dynamic-qint8/ptq/default"))
    assert row.checks["annotated"] == "fail"
    assert "input x is not annotated; the weight is not annotated" in row.detail


@installed
def test_of_a_model_that_quantizes_nothing_there_are_no_qparams_to_compare_with() -> None:
    row, unusable = Judge().row(run("F.adaptive_avg_pool2d/static-qint8/ptq/default", "typical"))
    assert unusable == ""
    assert (row.checks["reference"], row.checks["numerics"]) == ("fail", "skip")


@installed
def test_a_script_shows_what_is_not_annotated_and_nothing_else() -> None:
    finding = NotAnnotated("annotated", "input", "x")
    found = row("F.x", fails=["annotated"], findings=(finding,), checks={"annotated": "fail"}, detail=finding.text)
    wrong = script(run("nn.Conv1d/dynamic-qint8/ptq/default"), found, None)
    assert "DEVIATES annotated: input x is not annotated" in execute(wrong).output
    with pytest.raises(UsageError, match="exit status 0: CONFORMS"):
        execute(script(run(DYNAMIC), found, None))


@installed
def test_observers_of_torchao_and_our_own_are_observers() -> None:
    subject, model = prepared(LINEAR)
    observers = [name for name, module in model.named_modules() if is_observer(module)]
    assert len(observers) == 3
    assert not is_observer(subject.model)


@installed
@pytest.mark.parametrize("case", [LINEAR, DYNAMIC, BN])
def test_conversion_leaves_the_prepared_model_as_it_is(case: str) -> None:
    _, model = prepared(case)
    before = model.code
    first, second = (pt2e.converted(model).code for _ in range(2))
    assert first == second
    assert model.code == before != first


@installed
def test_an_execution_has_the_codes_of_weights_activations_and_outputs() -> None:
    subject, model = prepared(LINEAR)
    converted = pt2e.converted(model)
    execution = decomposed.execute(converted, subject.fresh_inputs())
    (output,) = execution.outputs
    assert output.quantized is not None
    assert torch.equal(output.quantized.dequantize(), output.values)
    assert torch.equal(output.values, converted(*subject.inputs))
    weight, x, y = (quantized for _, quantized in execution.quantized)
    assert (weight.dtype, x.dtype, y.dtype) == (torch.qint8,) * 3
    assert torch.equal(execution.quantized[1][0], subject.inputs[0])
    assert y is output.quantized


@installed
def test_patterns_exported_without_tracing_python_are_the_same_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchao.quantization.pt2e import utils

    export: Callable[..., GraphModule] = getattr(utils, pt2e.PATTERN)
    compared = []

    def both(pattern: Any, example_inputs: Any, is_cuda: bool = False, **options: Any) -> GraphModule:
        with monkeypatch.context() as strict:
            strict.setattr(torch.export, "export", pt2e.EXPORT)
            traced = export(pattern, example_inputs, is_cuda, **options)
        interpreted = export(pattern, example_inputs, is_cuda, **options)
        compared.append((traced.code, interpreted.code))
        return interpreted

    monkeypatch.setattr(utils, pt2e.PATTERN, both)
    for user in pt2e.users_of_patterns(export):
        monkeypatch.setattr(user, pt2e.PATTERN, both)
    monkeypatch.setattr(pt2e, "_graphs", {})
    pt2e.converted(prepared(BN)[1])
    assert len(compared) > 100
    assert all(traced == interpreted for traced, interpreted in compared)


@installed
def test_models_are_the_same_without_the_shortcut() -> None:
    with without("exported patterns"):
        slow = prepared(LINEAR)[1]
        slow_converted = pt2e.converted(slow)
    fast = prepared(LINEAR)[1]
    assert fast.code == slow.code
    assert pt2e.converted(fast).code == slow_converted.code


@installed
@pytest.mark.parametrize(
    ("case", "refused"),
    [
        ("F.linear+F.relu/static-qint8/ptq/behind_slice", "lower raises Refused: load"),
        ("F.linear+nn.ReLU/static-qint8/ptq/selected", "the observed model raises RuntimeError: index_select()"),
    ],
)
def test_what_a_quantizer_has_no_claim_about_is_built_and_refused_by_stage(case: str, refused: str) -> None:
    row, _ = Judge().row(run(case, "contexts"))
    assert (row.verdict, row.failed) == (Verdict.DEVIATES, frozenset({"lowered"}))
    assert row.detail.startswith(f"lowered: {refused}")


@installed
def test_the_draft_about_configured_convolutions_shows_what_it_says() -> None:
    text = (ROOT / "docs" / "upstream" / "xnnpack-configured-convolution.md").read_text(encoding="utf-8")
    script, printed = (text.partition(mark)[2].partition("```")[0] for mark in ("```python\n", "prints:\n\n```\n"))
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == printed
