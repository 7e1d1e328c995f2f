"""Where a deviation arises: in what prepare fuses, in the reference model, in the engine, or in a range that is fixed."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from audited_networks import images, residual
from torch import Tensor, nn
from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig

from conformance.audit import audit
from conformance.audit.agreement import decibels
from conformance.audit.grids import coarser
from conformance.models import fx
from conformance.reports.audit_text import text
from conformance.reports.audit_words import headline
from conformance.results.audits import CLIPPED, LOST_DB, USABLE_DB, Audit, Layer, State
from conformance.results.findings.layers import (
    FixedRangeClips,
    LayerCoarser,
    LayerDiffers,
    PrepareDiffers,
    ReferenceDiffers,
    SharedRange,
)
from tests.saturation import EXACT, needs_vnni


def kinds(layer: Layer) -> list[type]:
    return [type(fault.finding) for fault in layer.faults]


def blamed(audited: Audit) -> dict[str, list[type]]:
    return {layer.name: kinds(layer) for layer in audited.blamed}


def rows(*shape: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for _ in range(3)]


def padded(mode: Literal["zeros", "reflect"]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, padding_mode=mode), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()


@pytest.mark.parametrize("engine", ["x86", pytest.param("onednn", marks=needs_vnni), "qnnpack"])
def test_a_reference_that_is_worse_than_the_engine_is_blamed_and_the_engine_is_not(engine: str) -> None:
    audited = audit(padded("reflect"), images(), engine, reduce=False)
    assert blamed(audited) == {"0": [ReferenceDiffers]}
    (layer,) = audited.blamed
    assert layer.agreement is not None
    assert layer.agreement.wrong > 0, "the engine differs from the reference, because it is right"
    assert layer.faults[0].cause == "conv-padding-reference"
    assert not blamed(audit(padded("zeros"), images(), engine, reduce=False))


def normed() -> nn.Module:
    torch.manual_seed(2)
    norm = nn.BatchNorm1d(8)
    with torch.no_grad():
        norm.running_mean.normal_()  # type: ignore[union-attr]
        norm.weight.normal_()
    return nn.Sequential(nn.Linear(8, 8), norm).eval()


@pytest.mark.parametrize("engine", ["x86", pytest.param("onednn", marks=needs_vnni), "qnnpack"])
def test_a_fusion_that_computes_something_else_is_blamed_on_prepare(engine: str) -> None:
    audited = audit(normed(), rows(4, 8, 8), engine, reduce=False)
    assert blamed(audited) == {"0": [PrepareDiffers]}
    assert audited.blamed[0].faults[0].cause == "linear-batchnorm-rank3"
    assert not audited.usable
    assert audited.destroyer == audited.blamed[0]
    assert not blamed(audit(normed(), rows(16, 8), engine, reduce=False))


def test_a_fixed_range_is_blamed_where_it_clips() -> None:
    audited = audit(nn.Sequential(nn.Sigmoid()).eval(), [4 * x for x in rows(2, 8)], "x86", reduce=False)
    (layer,) = audited.blamed
    assert kinds(layer) == [FixedRangeClips]
    assert layer.faults[0].cause == "fixed-range-on-input"
    assert not audited.usable
    within = [x.abs().clamp(max=0.99) for x in rows(2, 8)]
    assert audit(nn.Sequential(nn.Sigmoid()).eval(), within, "x86", reduce=False).holds


@pytest.mark.parametrize("first", [True, False])
def test_a_fixed_range_is_blamed_beside_the_observer_of_another_operator(first: bool) -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.gated = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Any:
            if first:
                y = self.layer(x)
                return self.gated(torch.sigmoid(x)) + y
            y = self.gated(torch.sigmoid(x))
            return self.layer(x) + y

    (layer,) = audit(Gated().eval(), [4 * x for x in rows(2, 8)], "x86", reduce=False).blamed
    assert kinds(layer) == [FixedRangeClips]
    assert layer.faults[0].cause == "fixed-range-on-input"


class Multiplied(nn.Module):
    """A layer's result multiplied by a number."""

    def __init__(self, number: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.number = nn.Linear(8, 8), number

    def forward(self, x: Tensor) -> Any:
        return self.layer(x) * self.number


@pytest.mark.parametrize("engine", ["x86", "qnnpack"])
def test_a_range_that_is_shared_with_a_multiple_is_blamed_where_it_costs_most_of_the_codes(engine: str) -> None:
    audited = audit(Multiplied(100.0).eval(), rows(64, 8), engine, reduce=False)
    (layer,) = audited.blamed
    assert (layer.name, kinds(layer), layer.faults[0].cause) == ("layer", [SharedRange], "range-shared-with-multiple")
    assert not audited.usable
    assert audited.destroyer == layer
    assert audit(Multiplied(1.2).eval(), rows(64, 8), engine, reduce=False).holds


def test_integers_that_a_range_of_their_own_would_hold_exactly_share_one_with_their_multiple() -> None:
    class Counts(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return x * 100.0

    counts = [torch.arange(-3.0, 3.0).repeat(4, 2) for _ in range(2)]
    found = [
        fault for layer in audit(Counts().eval(), counts, "qnnpack", reduce=False).blamed for fault in layer.faults
    ]
    assert [type(fault.finding) for fault in found] == [SharedRange]


class Halves(nn.Module):
    """The results of two layers, one of which is much larger, that are joined and returned apart."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.small, self.large = nn.Linear(8, 8), nn.Linear(8, 8)
        self.large.weight.data *= factor

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        joined = torch.cat([self.small(x), self.large(x)], 1)
        return joined[:, :8], joined[:, 8:]


def test_an_output_that_is_destroyed_beside_a_larger_one_leaves_the_network_unusable() -> None:
    audited = audit(Halves(100.0).eval(), rows(64, 8), "qnnpack", reduce=False)
    assert audited.engine_db is not None
    assert audited.engine_db > USABLE_DB
    assert [(db is None or db > USABLE_DB) for db in audited.outputs_db] == [False, True]
    assert (audited.worst_output, audited.usable, audited.holds) == (1, False, False)
    assert "in output 1 of 2, under 10; small leaves" in headline(audited)
    assert headline(audited).endswith("nothing to blame")
    assert audit(Halves(1.0).eval(), rows(64, 8), "qnnpack", reduce=False).worst_output is None


def test_a_result_at_the_end_of_a_fixed_range_is_its_own_rounding() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(8, 8)
    nn.init.uniform_(linear.weight, -20, 20)
    audited = audit(nn.Sequential(linear, nn.Sigmoid()).eval(), rows(4, 8), "qnnpack", reduce=False)
    (layer,) = [layer for layer in audited.computing if "Sigmoid" in layer.pattern]
    assert layer.clipped > CLIPPED, "values near 1, which is a step beyond 255/256"
    assert audited.holds


def test_values_beyond_those_of_the_calibration_are_nobodys_fault_but_the_network_is_not_usable() -> None:
    first, second, last = rows(4, 16)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 8)).eval()
    audited = audit(model, [first, second, 40 * last], EXACT, reduce=False)
    assert not audited.blamed
    assert not audited.usable
    assert not audited.holds
    assert audit(model, [first, second, 40 * last], EXACT, reduce=False, floor_db=-100.0).holds


def test_a_grid_that_is_coarser_than_the_references_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = fx.lower_network

    def lowered(*arguments: Any) -> Any:
        reference, model, same = lower(*arguments)
        head = model.get_submodule("head")
        head.scale = float(head.scale) * 8  # type: ignore[assignment, arg-type]
        return reference, model, same

    monkeypatch.setattr(fx, "lower_network", lowered)
    audited = audit(residual(), images(), "x86", reduce=False)
    assert blamed(audited) == {"head": [LayerCoarser]}
    assert "the output is on the grid" in audited.blamed[0].faults[0].text


def test_a_scale_that_is_off_by_a_rounding_of_float32_is_no_coarser_grid() -> None:
    truth = torch.arange(-64, 64) * 2.0**-7
    local, rounded, coarse = (
        torch.quantize_per_tensor(truth, scale, 128, torch.quint8)
        for scale in (2.0**-7 * (1 + 1e-7), 2.0**-7 * (1 + 1e-6), 2.0**-5)
    )
    before, after = decibels(local, truth), decibels(rounded, truth)
    assert before is not None
    assert after is not None
    assert before - after > LOST_DB
    assert [*coarser(rounded, local, truth)] == []
    (finding,) = coarser(coarse, local, truth)
    assert isinstance(finding, LayerCoarser)


def test_an_engine_is_blamed_for_what_it_does_beside_a_reference_that_is_wrong_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lower = fx.lower_network

    def lying(_: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        codes = (output.int_repr().int() + 9).clamp(0, 255).to(torch.uint8)
        return torch._make_per_tensor_quantized_tensor(codes, output.q_scale(), output.q_zero_point())

    def lowered(*arguments: Any) -> Any:
        reference, model, same = lower(*arguments)
        model.get_submodule("0").register_forward_hook(lying)
        return reference, model, same

    monkeypatch.setattr(fx, "lower_network", lowered)
    audited = audit(padded("reflect"), images(), "x86", reduce=False)
    assert blamed(audited) == {"0": [ReferenceDiffers, LayerDiffers]}


class Recurrent(nn.Module):
    """Layers that the reference model quantizes in ways of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.rest = nn.Linear(8, 8), nn.LSTM(8, 8, batch_first=True)
        self.attention, self.last = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Any:
        y, _ = self.rest(self.first(x))
        return self.last(self.attention(y, y, y, need_weights=False)[0])


@pytest.mark.parametrize(
    ("model", "inputs", "engine"),
    [
        (padded("reflect"), images(), "x86"),
        (normed(), rows(4, 8, 8), EXACT),
        (nn.Sequential(nn.Sigmoid()).eval(), [4 * x for x in rows(2, 8)], "qnnpack"),
    ],
    ids=["reference", "prepare", "fixed range"],
)
def test_what_is_not_the_engines_fault_has_a_script_that_deviates_from_float(
    model: nn.Module, inputs: list[Tensor], engine: str, tmp_path: Path
) -> None:
    (reduction,) = audit(model, inputs, engine).reductions
    script = tmp_path / "reproduction.py"
    script.write_text(reduction.script)
    done = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True)
    assert done.stdout.startswith("DEVIATES reference: "), done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("mapping", [None, QConfigMapping().set_global(default_dynamic_qconfig)])
def test_declared_quantization_is_no_fault(mapping: QConfigMapping | None) -> None:
    torch.manual_seed(0)
    audited = audit(Recurrent().eval(), rows(2, 5, 8), "x86", mapping=mapping, reduce=False)
    assert not audited.failure
    assert not audited.blamed


def test_a_weight_that_a_hook_computes_is_not_compared() -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(8, 8)), nn.ReLU()).eval()
    assert not audit(model, rows(4, 8), "x86", reduce=False).blamed


def test_functions_with_weights_have_their_declared_weights() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(4, 3, 3, 3)), nn.Parameter(torch.randn(4))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.conv2d(x, self.weight, self.bias, (1, 1), (1, 1), (1, 1), 1)

    torch.manual_seed(0)
    audited = audit(Functional().eval(), images(), "x86", reduce=False)
    assert audited.holds
    (layer,) = audited.computing
    assert layer.float_db is not None
    assert 20 < layer.float_db < 60


def test_a_value_that_is_there_in_float_and_quantized_is_taken_as_the_layer_takes_it() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.conv(x), nn.functional.pad(x, (1, 1))

    torch.manual_seed(0)
    audited = audit(Both().eval(), images(), "x86", reduce=False)
    (pad,) = [layer for layer in audited.layers if layer.pattern == "F.pad"]
    assert pad.float_db is None
    assert audited.holds


@pytest.mark.parametrize("activation", [nn.SiLU, nn.Hardswish, nn.ReLU6])
def test_operators_that_compute_in_place_are_compared_with_what_they_were_given(activation: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), activation(inplace=True), nn.Conv2d(8, 4, 1)).eval()
    assert not audit(model, images(), "x86", reduce=False).blamed


def test_what_cannot_be_evaluated_in_float_costs_no_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: Any) -> Any:
        raise ValueError("no such value")

    monkeypatch.setattr("conformance.audit.origins.Origins.origin", raising)
    audited = audit(residual(), images(), "x86", reduce=False)
    assert audited.holds
    assert all(layer.float_db is None for layer in audited.layers)


def test_inputs_that_take_the_whole_range_are_named() -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x + mask

    mask = torch.zeros(4, 8)
    mask[:, 2] = torch.finfo(torch.float32).min
    audited = audit(Masked().eval(), [(x, mask) for x in rows(4, 8)], "x86", reduce=False)
    remark, *_ = audited.remarks  # the sum may overflow, which is said too
    assert remark.startswith("input 2 reaches -3.4e+38, so that all other values have one code")
    assert remark in " ".join(text(audited).split())
    assert not audit(Masked().eval(), [(x, x) for x in rows(4, 8)], "x86", reduce=False).remarks


def test_a_network_that_raises_where_it_runs_is_said_to_be_unable_to() -> None:
    class Attributed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.linear(x)) + self.linear.bias

    torch.manual_seed(0)
    audited = audit(Attributed().eval(), rows(4, 4), "x86", reduce=False)
    assert audited.state is State.BROKEN
    assert not audited.holds
    assert text(audited).splitlines()[1].startswith("~ cannot run: in quantize_per_tensor")


@pytest.mark.parametrize("written", [True, False])
def test_a_write_is_blamed_only_if_what_it_changes_is_used_again(written: bool) -> None:
    class Rewritten(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor) -> Any:
            y = self.first(x)
            both = torch.cat([y, y], 1)
            changed = nn.functional.relu(y, inplace=True)
            return (both, y) if written else (both, changed)

    torch.manual_seed(0)
    audited = audit(Rewritten().eval(), images(), "x86", reduce=False)
    causes = {fault.cause for layer in audited.blamed for fault in layer.faults}
    assert causes == ({"inplace-alias"} if written else set())
