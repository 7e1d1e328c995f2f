"""Audits through PT2E: what quantizers convert, held region by region to the reference, and as one program."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from conformance.__main__ import main
from conformance.audit import audit, quantization
from conformance.audit.auditing import host
from conformance.audit.causes import explained
from conformance.audit.corpus import audited as of_corpus
from conformance.audit.exported import export
from conformance.audit.network import network
from conformance.audit.parts import Cutter
from conformance.results.audits import Arithmetic, Audit, Layer, State, from_json
from conformance.results.findings.layers import LayerDiffers, LayersDiffer, LayersRaise, PrepareDiffers
from conformance.results.findings.stages import Crashes
from conformance.results.ledger_file import load
from tests.audit.exported_networks import (
    CLEAN,
    IMAGE,
    INSIDE,
    argument,
    calls,
    on_executorch,
    on_x86,
    planted_in_delegates,
    planted_in_programs,
    subject_of,
)


def audited(name: str, quantizer: str, engine: str | None = None, **how: Any) -> Audit:
    return explained(quantization(quantizer, engine, **how).audit(subject_of(name)), load(), host())


def by_name(found: Audit) -> dict[str, Layer]:
    return {layer.name: layer for layer in found.layers}


@pytest.mark.parametrize("name", CLEAN)
@pytest.mark.parametrize(
    "quantizer", [pytest.param("xnnpack", marks=on_executorch), pytest.param("x86inductor", marks=on_x86)]
)
def test_a_network_without_deviations_is_not_blamed(quantizer: str, name: str) -> None:
    found = audited(name, quantizer)
    assert (found.failure, found.blamed, found.loses, found.unstable) == ("", (), False, ())
    assert found.holds


@on_executorch
def test_it_says_what_runs_in_integers_and_why_the_rest_does_not() -> None:
    found = audited("attention", "xnnpack")
    layers = by_name(found)
    assert (found.backend, found.engine) == ("xnnpack", "executorch")
    assert {layers[name].arithmetic for name in ("qkv", "out")} == {Arithmetic.INTEGER}
    assert layers["norm"].reason == "the quantizer does not annotate nn.LayerNorm"
    assert layers["qkv"].claim == "xnnpack/nn.Linear/static-qint8"
    assert found.delegates is not None
    assert found.delegates > 1


@on_executorch
def test_an_annotated_operator_that_the_partitioner_leaves_is_told_from_one_that_is_not_annotated() -> None:
    mean = by_name(audited("small", "xnnpack"))["mean"]
    assert (mean.pattern, mean.arithmetic) == ("torch.mean", Arithmetic.FLOAT)
    assert mean.reason == "annotated, and left outside of the delegate"


@on_x86
def test_fused_operators_are_one_layer() -> None:
    layers = by_name(audited("small", "x86inductor"))
    assert layers["stem.0"].pattern == "nn.Conv2d+nn.BatchNorm2d+nn.ReLU"
    assert layers["stem.0"].kernels == ("onednn.qconv_pointwise",)
    assert layers["stem.0"].claim == "x86inductor/nn.Conv2d+nn.BatchNorm2d+nn.ReLU/static-quint8"


@on_x86
def test_what_quantization_costs_is_told_from_what_the_engine_loses() -> None:
    found = audited("small", "x86inductor")
    assert found.reference_db is not None
    assert found.engine_db is not None
    assert 20 < found.reference_db < 60
    assert abs(found.engine_db - found.reference_db) < 0.5


@on_executorch
def test_a_blamed_layer_is_reduced_to_a_script_that_needs_no_suite(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveMaxPool2d(2)).eval()
    found = audit(model, [torch.randn(IMAGE) for _ in range(3)], quantizer="xnnpack")
    (reduction,) = found.reductions
    assert reduction.text.startswith("shown by the layer alone")
    script = tmp_path / "script.py"
    script.write_text(reduction.script)
    assert "conformance" not in reduction.script
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("DEVIATES lowered: SpecViolationError")


@on_x86
def test_the_script_of_a_part_that_conforms_says_so() -> None:
    how = quantization("x86inductor")
    exported = export(subject_of("small"), how.make, lambda _: None)
    cutter = Cutter(exported.in_float, exported.members, exported.float_values)
    part = cutter.part(cutter.group(["conv2d"]))
    assert how.write is not None
    scope: dict[str, Any] = {"__name__": "script"}
    exec(how.write(part, "stem", False), scope)
    assert scope["deviation"]() == ""
    assert [node.name for node in part.graph.nodes if node.op == "call_function"] == ["conv2d", "batch_norm", "relu"]


@on_executorch
@pytest.mark.parametrize("kind", INSIDE)
def test_a_fault_inside_of_a_delegate_is_blamed_on_the_operator(kind: str) -> None:
    layer, fault = INSIDE[kind]
    with planted_in_delegates(kind, fault):
        found = audited("small", "xnnpack")
    assert [one.name for one in found.blamed] == [layer]
    assert isinstance(found.blamed[0].faults[0].finding, LayerDiffers)


@on_x86
@pytest.mark.parametrize(
    ("change", "layer"),
    [
        (argument("qlinear_pointwise", 6, None), "head"),  # no bias
        (argument("max_pool2d", 2, [1, 1]), "pool"),
        (argument("aten.mean", 1, [1, 2]), "mean"),
    ],
    ids=["bias", "stride", "dimensions"],
)
def test_a_fault_in_a_lowered_program_is_blamed_on_its_layer(change: Callable[[GraphModule], None], layer: str) -> None:
    with planted_in_programs(change):
        found = audited("small", "x86inductor")
    assert found.blamed[0].name == layer
    assert not found.holds


@on_x86
def test_what_is_wrong_in_company_alone_is_cut_to_the_least_part() -> None:
    def change(program: GraphModule) -> None:
        convolutions = calls(program, "qconv")
        for node in convolutions[1:]:  # of a program with one convolution none is changed
            node.update_arg(8, [1, 1])
            node.update_arg(6, None)

    with planted_in_programs(change):
        found = audited("small", "x86inductor")
    (layer,) = found.blamed
    finding = layer.faults[0].finding
    assert isinstance(finding, LayersDiffer)
    assert finding.layers == ("stem.0", "depthwise")


@on_x86
def test_what_raises_in_company_alone_is_cut_to_the_least_part() -> None:
    def change(program: GraphModule) -> None:
        if calls(program, "qconv") and calls(program, "qlinear"):
            raise RuntimeError("not both")

    with planted_in_programs(change):
        found = audited("small", "x86inductor")
    assert found.state is State.BROKEN
    assert found.failure == "the whole program raises RuntimeError: not both"
    (layer,) = found.blamed
    finding = layer.faults[0].finding
    assert isinstance(finding, LayersRaise)
    assert finding.layers[0] == "depthwise"
    assert finding.layers[-1] == "head"


@on_x86
def test_a_layer_that_ends_the_process_is_named_and_the_others_are_audited() -> None:
    def change(program: GraphModule) -> None:
        if calls(program, "qlinear"):
            os.kill(os.getpid(), signal.SIGSEGV)

    with planted_in_programs(change):
        found = audited("small", "x86inductor")
    assert [layer.name for layer in found.blamed] == ["head"]
    assert isinstance(found.blamed[0].faults[0].finding, Crashes)
    assert by_name(found)["stem.0"].agreement is not None
    assert found.failure.startswith("the whole program raises RuntimeError: the process dies (SIGSEGV")


@on_x86
def test_what_ends_the_process_in_company_alone_is_cut_to_the_least_part() -> None:
    def change(program: GraphModule) -> None:
        if calls(program, "qconv") and calls(program, "qlinear"):
            os.kill(os.getpid(), signal.SIGSEGV)

    with planted_in_programs(change):
        found = audited("small", "x86inductor")
    (layer,) = found.blamed
    finding = layer.faults[0].finding
    assert isinstance(finding, LayersRaise)
    assert (finding.layers[0], finding.layers[-1]) == ("depthwise", "head")
    assert finding.message.startswith("SIGSEGV")


@on_x86
def test_what_preparing_changes_is_blamed() -> None:
    """torchao folds a batch norm into a convolution whose weight another one shares."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.other = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1)
            self.other.weight = self.conv.weight
            self.norm.running_var.fill_(4.0)  # type: ignore[union-attr]

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.norm(self.conv(x)) + self.other(x)
            return result

    torch.manual_seed(0)
    model = Shared().eval()
    found = audit(model, [torch.randn(IMAGE) for _ in range(3)], quantizer="x86inductor")
    (layer,) = found.blamed
    (fault,) = layer.faults
    assert isinstance(fault.finding, PrepareDiffers)
    assert (layer.name, fault.cause) == ("other", "shared-layer-norms")


@on_x86
def test_a_network_is_prepared_for_training() -> None:
    found = audited("small", "x86inductor", qat=True)
    assert (found.failure, found.blamed) == ("", ())
    assert by_name(found)["stem.0"].arithmetic is Arithmetic.INTEGER


@on_x86
def test_a_quantizer_of_ones_own_is_taken() -> None:
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    own = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())
    own.set_module_name_qconfig("head", None)
    layers = by_name(audit(subject_of("small").model, subject_of("small").batches, quantizer=own))
    assert layers["head"].reason == "the quantizer does not annotate nn.Linear"
    assert layers["stem.0"].arithmetic is Arithmetic.INTEGER


@on_executorch
def test_layers_that_choose_qparams_at_each_call_have_the_dynamic_claim() -> None:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    subject = subject_of("encoder")
    found = audit(subject.model, subject.batches, quantizer=XNNPACKQuantizer().set_global(config))
    assert (found.failure, found.blamed) == ("", ())
    layers = by_name(found)
    assert layers["2"].claim == "xnnpack/nn.Linear/dynamic-qint8"
    assert {layers[name].arithmetic for name in ("0", "2")} == {Arithmetic.INTEGER}


@on_x86
def test_what_cannot_be_exported_is_named_by_its_line() -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    subject = network("branches", Branches().eval(), [torch.randn(IMAGE) for _ in range(2)])
    found = quantization("x86inductor").audit(subject)
    assert found.stage == "export"
    assert "return x if x.sum() > 0 else -x" in found.failure
    assert found.advice.startswith("torch.export takes no control flow that depends on values")


@on_x86
def test_nested_arguments_and_constants_are_taken() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, pair: dict[str, Tensor], twice: bool, other: Tensor | None = None) -> dict[str, Tensor]:
            y = self.layer(pair["a"] + pair["b"])
            return {"y": y * 2 if twice else y}

    torch.manual_seed(0)
    batches = [({"a": torch.randn(3, 4), "b": torch.randn(3, 4)}, True) for _ in range(2)]
    found = audit(Nested().eval(), batches, quantizer="x86inductor")
    assert (found.failure, found.blamed) == ("", ())
    assert "layer" in by_name(found)


@on_x86
def test_constants_and_inputs_may_be_returned_and_values_be_left_unused() -> None:
    class Returning(nn.Module):
        table: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("table", torch.arange(3.0))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
            self.layer(x * 3)
            return self.layer(x), self.table, x, 7

    torch.manual_seed(0)
    found = audit(Returning().eval(), [torch.randn(3, 4) for _ in range(2)], quantizer="x86inductor")
    assert (found.failure, found.blamed) == ("", ())
    assert found.engine_db is not None
    assert found.engine_db > 10


@on_x86
def test_the_regions_have_each_operator_once_in_order() -> None:
    subject = subject_of("attention")
    exported = export(subject, quantization("x86inductor").make, lambda _: None)
    regions = exported.regions
    computing = [node for node in exported.converted.graph.nodes if regions.computes(node)]
    assert sorted(node.name for region in regions.all for node in region.nodes) == sorted(n.name for n in computing)
    ends = [regions.order[region.nodes[-1]] for region in regions.all]
    assert ends == sorted(ends)


@on_x86
def test_the_whole_as_one_part_is_the_network() -> None:
    exported = export(subject_of("small"), quantization("x86inductor").make, lambda _: None)
    cut = exported.regions.cut(exported.regions.all)
    with torch.no_grad():
        expected, found = exported.converted(*exported.held_out), cut.model(*exported.held_out)
    assert all(map(torch.equal, expected, found))


@on_x86
def test_preparing_leaves_the_float_network_as_it_is() -> None:
    subject = subject_of("small")
    with torch.no_grad():
        before = subject.model(*subject.held_out)
        exported = export(subject, quantization("x86inductor").make, lambda _: None)
        assert torch.allclose(exported.in_float(*exported.held_out)[0], before, atol=1e-6)
        assert torch.equal(subject.model(*subject.held_out), before)


@on_x86
def test_the_command_prints_the_audit_and_writes_it_as_json_and_as_a_page(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    json_path, page = tmp_path / "audit.json", tmp_path / "audit.html"
    network_and_data = ["audited_networks:residual", "--shape", "2,3,12,12"]
    written = ["--json", str(json_path), "-o", str(page)]
    main(["audit", *network_and_data, "--quantizer", "x86inductor", *written])
    printed = capfd.readouterr()
    assert "audited_networks:residual on x86-inductor, quantizer x86inductor, audited in" in printed.out
    assert "x86-inductor: execute the whole program" in printed.err
    (found,) = map(from_json, json.loads(json_path.read_text(encoding="utf-8")))
    assert (found.backend, found.engine) == ("x86inductor", "x86-inductor")
    assert found.layers
    assert "quantizer x86inductor" in page.read_text(encoding="utf-8")


@on_x86
def test_networks_of_the_corpus_are_audited_in_parallel() -> None:
    audits = [one for (one,) in of_corpus(["neumf", "fasttext"], [quantization("x86inductor", reduce=False)], 2)]
    assert {one.network for one in audits} == {"neumf", "fasttext"}
    assert [one.failure for one in audits] == ["", ""]
