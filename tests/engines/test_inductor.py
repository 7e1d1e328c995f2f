"""Engines of inductor. They run in `tox -e pt2e-x86` alone, but for what a missing torchao means."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.fx import GraphModule

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.checks.judge import Judge
from conformance.engines.inductor import COMPILED, LOWERED
from conformance.engines.registry import engine
from conformance.host.cpu import cpu
from conformance.models import apis, build, pt2e
from conformance.paths import ROOT
from conformance.repro.execution import execute
from conformance.repro.least.script import least
from conformance.repro.script import script
from conformance.results.findings.stability import WritesToInput
from conformance.results.verdicts import Verdict
from conformance.shortcuts import without
from tests.saturation import needs_vnni

missing = importlib.util.find_spec("torchao") is None
installed = pytest.mark.skipif(missing, reason="torchao is not installed")
CONV = "nn.Conv2d+nn.ReLU/static-quint8/ptq/default"
NORM = "nn.Conv2d+nn.BatchNorm2d+nn.ReLU/static-quint8/qat/default"
ADDED = "operator.add(nn.Linear,*)/static-quint8/ptq/default"


def run(case: str, used: str = "x86-inductor") -> Run:
    every = runs(backend("x86inductor"), [used])
    return next(run for run in every if run.id == f"x86inductor/{case}/exact@{used}")


def converted(case: str) -> tuple[build.Subject, GraphModule]:
    subject = build.subject(run(case))
    prepared = apis.of(subject.run.backend).prepare(subject)
    apis.of(subject.run.backend).calibrate(prepared, subject)
    return subject, pt2e.converted(prepared)


@pytest.mark.skipif(not missing, reason="torchao is installed")
def test_without_torchao_the_engines_are_unavailable() -> None:
    for name, environment in {"x86-inductor": "x86", "x86-compiled": "x86", "arm-inductor": "arm"}.items():
        reason = f"torchao cannot be imported: install it, or use `tox -e pt2e-{environment}`"
        assert reason in (engine(name).unavailable() or "")


@needs_vnni
@installed
@pytest.mark.parametrize(
    "case", [CONV, NORM, "nn.Linear/static-quint8/ptq/default", "nn.Linear/dynamic-quint8/ptq/default"]
)
def test_a_claim_that_holds_conforms(case: str) -> None:
    row, unusable = Judge().row(run(case))
    assert (row.verdict, row.detail, unusable) == (Verdict.CONFORMS, "", "")
    assert [name.partition("_pointwise")[0] for name in row.kernels][-1] in ("onednn.qconv", "onednn.qlinear")


@installed
def test_weights_of_float16_are_held_to_the_oracle() -> None:
    row, unusable = Judge().row(run("nn.Linear+nn.ReLU/dynamic-float16/ptq/default"))
    assert (row.verdict, row.kernels, unusable) == (Verdict.CONFORMS, ("onednn.linear_relu_dynamic_fp16",), "")
    assert row.checks["annotated"] == row.checks["numerics"] == "pass"


@needs_vnni
@installed
def test_a_linear_layer_for_arm_is_fused_if_its_weight_has_a_scale_for_each_channel() -> None:
    every = {one.id: one for one in runs(backend("arminductor"), ["arm-inductor"])}
    one, many = (
        Judge().row(every[f"arminductor/nn.Linear/static-qint8/ptq/{name}/exact@arm-inductor"])[0]
        for name in ("default", "per_channel")
    )
    assert (one.verdict, one.failed) == (Verdict.DEVIATES, frozenset({"lowered"}))
    assert (many.verdict, many.kernels) == (Verdict.CONFORMS, ("onednn.qlinear_pointwise",))


@installed
def test_models_of_the_same_source_for_other_shapes_are_prepared_apart() -> None:
    """The quantizer annotates products of tensors of one shape only."""
    judge = Judge()
    equal, broadcast = (
        judge.row(run(f"operator.mul/static-quint8/ptq/{name}"))[0] for name in ("default", "broadcast")
    )
    assert (equal.checks["annotated"], broadcast.checks["annotated"]) == ("pass", "fail")


@needs_vnni
@installed
def test_a_compiled_program_has_codes_and_kernels() -> None:
    row, _ = Judge().row(run("nn.MaxPool2d/static-quint8/ptq/default", "x86-compiled"))
    assert (row.verdict, row.detail) == (Verdict.CONFORMS, "")
    assert any("qconv" in name for name in row.kernels)
    assert row.steps_max == 0


@installed
@pytest.mark.parametrize("case", [CONV, NORM])
def test_programs_are_the_same_without_the_shortcut(case: str) -> None:
    subject, model = converted(case)
    fast = LOWERED.lower_for(model, subject.fresh_inputs())
    with without("decompositions"):
        slow = LOWERED.lower_for(model, subject.fresh_inputs())
    assert isinstance(fast, GraphModule)
    assert isinstance(slow, GraphModule)
    assert fast.code == slow.code
    with torch.no_grad():
        assert torch.equal(fast(*subject.fresh_inputs()), slow(*subject.fresh_inputs()))


@installed
def test_lowering_leaves_the_converted_model_as_it_is() -> None:
    subject, model = converted(CONV)
    before = model.code
    for lowering in (LOWERED, COMPILED):
        lowering.lower_for(model, subject.fresh_inputs())
        assert model.code == before


@installed
def test_a_saved_and_loaded_model_computes_the_same() -> None:
    subject, model = converted(CONV)
    again = pt2e.saved_and_loaded(model, subject.fresh_inputs())
    assert torch.equal(again(*subject.fresh_inputs()), model(*subject.fresh_inputs()))


@needs_vnni
@installed
def test_a_script_shows_that_an_input_is_overwritten() -> None:
    row, _ = Judge().row(run(ADDED))
    assert [type(finding) for finding in row.findings] == [WritesToInput]
    assert "DEVIATES stable" in execute(script(run(ADDED), row, None)).output


@installed
def test_without_frozen_weights_a_layer_is_computed_in_float() -> None:
    row, _ = Judge().row(run("nn.Linear/static-quint8/ptq/default", "x86-unfrozen"))
    assert (row.failed, row.detail) == (frozenset({"lowered"}), "lowered: ran in float: aten.addmm")


@needs_vnni
@installed
@pytest.mark.parametrize(
    ("name", "kernel"), [("x86-aot", "onednn.qlinear_pointwise"), ("x86-aot-unfrozen", "aten.addmm")]
)
def test_what_is_compiled_ahead_of_time_has_integer_kernels_for_frozen_weights_alone(name: str, kernel: str) -> None:
    subject, model = converted("nn.Linear/static-quint8/ptq/default")
    inputs = subject.fresh_inputs()
    implementation = engine(name)
    execution = implementation.execute(implementation.compile(model, inputs), inputs)
    assert {one.name for one in execution.kernels} == {kernel}
    assert execution.kernels[0].quantized is (name == "x86-aot")
    with torch.no_grad():
        assert torch.allclose(execution.outputs[0].values, model(*inputs), atol=1e-4)


@installed
def test_a_compiled_program_is_not_compiled_again_for_strided_inputs() -> None:
    """It would be without frozen weights, and in float."""
    subject, model = converted("nn.Linear/static-quint8/ptq/default")
    (x,) = subject.fresh_inputs()
    inputs = [torch.stack([x, x], -1)[..., 0]]
    assert not inputs[0].is_contiguous()
    kernels = COMPILED.execute(COMPILED.compile(model, inputs), inputs).kernels
    assert [kernel.name for kernel in kernels if kernel.quantized] == ["onednn.qlinear_pointwise"]


@installed
def test_a_convolution_that_is_called_twice_before_an_activation_is_refused_while_preparing() -> None:
    every = runs(backend("x86inductor"), ["x86-inductor"])
    twice = next(one for one in every if one.id.startswith("x86inductor/nn.Conv2d+") and "/fused_twice/" in one.id)
    row, _ = Judge().row(twice)
    assert row.detail.startswith("lowered: prepare raises ValueError")


@installed
@pytest.mark.parametrize(
    ("case", "line"),
    [
        (
            "nn.ReLU(operator.add(*,nn.Conv2d))/static-quint8/ptq/default",
            "prepared = prepare_pt2e(exported, quantizer)",
        ),
        ("F.linear+nn.Tanh/static-quint8/ptq/default", "nodes = annotated.graph.nodes"),
    ],
)
def test_a_least_script_exports_and_lowers_as_users_do(case: str, line: str) -> None:
    one = run(case)
    row, _ = Judge().row(one)
    text = least(one, row)
    assert len(text.splitlines()) <= 40
    assert f"{line}\n" in text
    assert "conformance" not in text.replace(one.id, "")


@needs_vnni
@installed
@pytest.mark.parametrize("used", ["x86-inductor", "x86-compiled"])
def test_a_whole_script_compares_codes_and_qparams_of_the_output(used: str) -> None:
    case = f"x86inductor/nn.Conv2d+nn.BatchNorm2d/static-quint8/qat/norm_eps/pairs@{used}"
    one = next(one for one in runs(backend("x86inductor"), [used]) if one.id == case)
    row, _ = Judge().row(one)
    assert row.failed == {"numerics"}
    lines = execute(script(one, row, None)).output.splitlines()
    assert [line.startswith("DEVIATES numerics: ") for line in lines] == [True, True]
    assert "qparams" in lines[0]


def compiled_with(capability: str, folder: Path) -> float:
    """The greatest error of compiled code in a process with an instruction set and a folder for code."""
    script = """
import torch
from torch import nn
from conformance.models.compiled import compiled

class Model(nn.Module):
    def forward(self, x):
        return (x * 2).relu() + 1

x = torch.linspace(-3, 3, 4099)
with torch.no_grad():
    print(float((compiled(Model(), [x], freezing=False)(x) - Model()(x)).abs().max()))
"""
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability, "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


@installed
@pytest.mark.skipif("avx512f" not in cpu()[1], reason="the CPU has one instruction set")
def test_code_for_one_instruction_set_is_not_run_with_another(tmp_path: Path) -> None:
    assert [compiled_with(capability, tmp_path) for capability in ("avx512", "avx2")] == [0.0, 0.0]
    assert {path.name for path in tmp_path.iterdir()} >= {"avx512", "avx2"}


@pytest.mark.skipif("avx512f" not in cpu()[1], reason="the CPU has one instruction set")
def test_the_draft_about_the_cache_of_graphs_shows_it() -> None:
    text = (ROOT / "docs" / "upstream" / "inductor-cache.md").read_text(encoding="utf-8")
    script = text.partition("```python\n")[2].partition("```")[0]
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith("avx512: 0 of 4099 elements are wrong")
    assert second.endswith("[8, 9, 10, 11, 12, 13, 14, 15]")


@installed
def test_selected_values_have_codes_if_all_have() -> None:
    """A trained norm quantizes the result of a layer, and what is selected from it is on its grid."""
    every = runs(backend("x86inductor"), ["x86-inductor"])
    selected = next(one for one in every if "/qat/selected/contexts@" in one.id)
    row, _ = Judge().row(selected)
    assert "numerics" not in row.failed
