"""Sweeps that lower a calibrated model anew in each turn, compared with those that set qparams in a lowered model."""

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization import MinMaxObserver
from torch.fx import GraphModule, symbolic_trace

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.configs.engines import ENGINE_TABLE
from conformance.engines.registry import engine
from conformance.models import apis, build, fx
from conformance.properties.codes import settings
from conformance.properties.codes.sweeps import Executed, Relowered, plan
from tests.runs_by_id import run


@pytest.mark.parametrize(
    "name",
    [
        "fbgemm/nn.Hardswish/static-quint8/ptq/every_code/codes@fbgemm",
        "fbgemm/torch.add+nn.ReLU/static-quint8/ptq/every_pair/codes@fbgemm",
        "fbgemm/F.linear+F.relu/static-quint8/ptq/one_weight_per_channel/codes@fbgemm",
        "fbgemm/nn.Sigmoid/static-quint8/ptq/every_code/codes@fbgemm",
        "fbgemm/nn.ReLU/static-quint8/ptq/every_code/codes@fbgemm",
    ],
)
def test_lowering_anew_gives_what_setting_qparams_in_the_lowered_model_gives(name: str) -> None:
    subject_run = run(name)
    used, config = engine("fbgemm"), subject_run.backend.config
    if (reason := used.unavailable()) is not None:
        pytest.skip(reason)
    with used.scope(), fx.quiet(), torch.no_grad():
        subject = build.subject(subject_run)
        prepared = apis.of(subject.run.backend).prepare(subject)
        apis.of(subject.run.backend).calibrate(prepared, subject)
        once, again = Executed(fx.lower(prepared, config)), Relowered(used, prepared, config)
        sweep = plan(subject_run, subject, again.own_qparams, in_float=again.in_float)
        given = plan(subject_run, subject, once.own_qparams).qparams
        assert torch.equal(given.scale, sweep.qparams.scale)
        assert torch.equal(given.zero_point, sweep.qparams.zero_point)
        for number in (1, 4):
            one, other = once.turn(sweep, number), again.turn(sweep, number)
            assert (one.q_scale(), one.q_zero_point()) == (other.q_scale(), other.q_zero_point())
            assert torch.equal(one.int_repr(), other.int_repr())


class Trained(nn.Module):
    """An observed layer whose weight is scaled before it is observed, as that of a layer with a norm is in training."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))
        self.of_input, self.of_weight, self.of_output = (MinMaxObserver() for _ in range(3))  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor) -> Tensor:
        weight = self.of_weight(self.weight * 2)
        result: Tensor = self.of_output(nn.functional.linear(self.of_input(x), weight))
        return result


class Tracer(torch.fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, MinMaxObserver)


def test_the_observer_of_a_computed_weight_is_none_of_an_activation() -> None:
    model = Trained()
    graph = GraphModule(model, Tracer().trace(model))
    assert settings.observers_of(graph) == [("output", model.of_output), ("x", model.of_input)]
    settings.set_observed(graph, {"x": (0.5, 3), "output": (0.25, 7)})
    graph(torch.tensor([[0.0, 1.0]]))
    found = [tuple(map(float, one.calculate_qparams())) for one in (model.of_input, model.of_output)]
    assert found == [(0.5, 3.0), (0.25, 7.0)]
    assert float(model.of_weight.calculate_qparams()[0]) == pytest.approx(2 / 255)


def test_a_model_without_observers_is_in_float() -> None:
    model = Relowered(engine("fbgemm"), symbolic_trace(nn.ReLU()), backend("fbgemm").config)
    assert model.in_float
    assert not model.own_qparams


@pytest.mark.parametrize("name", ["executorch", "xnnpack", "x86inductor", "arminductor", "cortexm", "tosa"])
def test_every_engine_but_those_that_take_seconds_has_a_sweep_of_each_static_claim_that_has_one(name: str) -> None:
    every = [one for one in runs(backend(name)) if one.profile == "codes"]
    assert len({one.id for one in every}) == len(every)
    used = {name for name in backend(name).engines if not ENGINE_TABLE[name].default_only}
    assert {one.engine for one in every} == used
    swept = {one.claim.pattern for one in every}
    static = {claim.id for claim in backend(name).claims if claim.pattern in swept and "static" in claim.dtype_config}
    assert {one.claim.id for one in every} == static


def variants(name: str, pattern: str) -> list[Run]:
    return [one for one in runs(backend(name)) if one.profile == "codes" and one.claim.pattern == pattern]


def test_images_in_channels_last_format_have_two_channels() -> None:
    (conv,) = variants("cortexm", "nn.Conv2d")
    assert conv.model.operands[0][1].shape[1] == 2
    assert conv.model.operands[0][1].layout == "channels_last"
    (linear,) = variants("cortexm", "nn.Linear")
    assert linear.model.operands[0][1].shape[1] == 1


def test_an_operator_that_is_quantized_behind_layers_only_follows_one() -> None:
    (behind,) = variants("xnnpack", "nn.Hardtanh")
    assert "nn.Conv2d(1, 1, 1, bias=False)" in behind.model.source
