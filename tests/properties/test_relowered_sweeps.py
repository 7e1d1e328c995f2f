"""Sweeps of engines whose programs have their qparams as constants: each turn converts and lowers the calibrated model anew.

The environments of the engines run these tests; elsewhere those of absent engines are skipped.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization import MinMaxObserver
from torch.fx import GraphModule, symbolic_trace

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.configs.engines import ENGINE_TABLE
from conformance.engines.registry import engine
from conformance.execution.batch import make_ready
from conformance.models import apis, build, fx
from conformance.oracle.sweep import quantized
from conformance.properties.codes import settings
from conformance.properties.codes.judge import Judged
from conformance.properties.codes.sweeps import Executed, Plan, Relowered, Swept, plan
from conformance.results.findings.codes import SweptCodes, SweptElement, SweptQparams, SweptRaises
from tests.property_scripts import executed, source
from tests.runs_by_id import run

LINEAR = "executorch/nn.Linear/static-qint8/ptq/one_weight/codes@executorch"
BEHIND = "xnnpack/nn.Hardtanh/static-qint8/ptq/every_code/codes@executorch"
IN_FLOAT = "x86inductor/nn.Conv2d/static-quint8/ptq/one_weight/codes@x86-inductor"
TRAINED = "x86inductor/nn.Conv2d+nn.BatchNorm2d/static-quint8/qat/one_weight/codes@x86-inductor"
TWO_WEIGHTS = "cortexm/nn.Conv2d/static-qint8/ptq/two_weights/codes@cortex-m"
PAIRS = "tosa/torch.add/static-qint8/ptq/every_pair/codes@tosa"
CASES = [LINEAR, BEHIND, IN_FLOAT, TRAINED, TWO_WEIGHTS, PAIRS]


@cache
def planned(name: str) -> tuple[Relowered, Plan]:
    subject_run = run(name)
    used = engine(subject_run.engine)
    if (reason := used.unavailable()) is not None:
        pytest.skip(reason)
    make_ready([subject_run.backend], [subject_run.engine])
    with used.scope(), fx.quiet():
        subject = build.subject(subject_run)
        prepared = apis.prepare(subject)
        apis.calibrate(prepared, subject)
        model = Relowered(used, prepared, subject_run.backend.config)
        return model, plan(subject_run, subject, model.own_qparams, in_float=model.in_float)


def turn(name: str, number: int) -> Tensor:
    model, sweep = planned(name)
    with engine(sweep.run.engine).scope(), fx.quiet(), torch.no_grad():
        return model.turn(sweep, number)


@pytest.mark.parametrize("name", CASES)
def test_a_turn_has_the_qparams_that_it_is_given_and_the_codes_of_exact_arithmetic(name: str) -> None:
    _, sweep = planned(name)
    expected = quantized(sweep.results, sweep.magnitude, sweep.qparams)
    for number in (0, 4):
        got = turn(name, number)
        assert got.is_quantized is not (name == IN_FLOAT)
        if got.is_quantized:
            output = sweep.output_qparams(number, sweep.qparams)
            assert (got.q_scale(), got.q_zero_point()) == (output.scale, output.zero_point)
        codes = settings.result_codes(got)
        assert len(set(codes.flatten().tolist())) > 20
        beyond = torch.maximum(expected.low[number] - codes, codes - expected.high[number])
        # a step beside a tie, where CMSIS-NN rounds twice
        assert int(beyond.max()) <= (name == TWO_WEIGHTS)
        assert float((beyond > 0).double().mean()) < 0.01


def element(name: str, number: int) -> SweptElement:
    """An element of a turn that is no tie, with the code that exact arithmetic gives."""
    _, sweep = planned(name)
    expected = quantized(sweep.results, sweep.magnitude, sweep.qparams)
    judged = Judged(Swept(sweep, expected, expected.low, sweep.qparams, {}))
    untied = (~expected.tied[number]).flatten().nonzero().flatten()
    return judged.element(number * expected.low[number].numel() + int(untied[9]))


@pytest.mark.parametrize("name", CASES)
def test_a_script_lowers_the_model_with_the_qparams_of_a_turn(name: str) -> None:
    first = element(name, 2)
    wrong = replace(first, low=first.low + 9, high=first.high + 9)
    kinds = [SweptCodes("numerics", 1, 2, 1, 1, 3, (one,)) for one in (first, wrong)]
    output = first.got.tensor
    raises = SweptRaises("lowered", 2, 1, 3, first.operands, output, "RuntimeError", "no kernel")
    right, off = executed(source(name, kinds[0], raises), source(name, kinds[1]))
    assert right == ["CONFORMS"]
    assert off == [f"DEVIATES numerics: {first.low}, exact arithmetic gives {first.exact:.9g}"]


def test_a_script_deviates_where_the_output_has_other_qparams() -> None:
    first = element(LINEAR, 2)
    output = first.got.tensor
    other = replace(output, scale=output.scale * 2)
    ((line,),) = executed(source(LINEAR, SweptQparams("numerics", 2, 1, 3, first.operands, output, other)))
    assert line == f"DEVIATES numerics: scale {output.scale}, zero point {output.zero_point}"


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
    again, sweep = planned(name)
    with engine("fbgemm").scope(), fx.quiet(), torch.no_grad():
        once = Executed(fx.lower(again.calibrated, again.config))
        given = plan(sweep.run, build.subject(sweep.run), once.own_qparams).qparams
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
