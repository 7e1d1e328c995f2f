"""Models with missing, misplaced or wrong observers and modules fail the check `observed`."""

import copy

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

from conformance.checks.structure import class_name
from conformance.repro.script import script
from conformance.results.findings.structure import MissingModule
from tests.fabricated import row_of
from tests.lies import (
    DYNAMIC,
    LINEAR,
    LINEAR_QAT,
    LINEAR_RELU,
    POOLING,
    after,
    call,
    erased,
    failed,
    instead,
    judged,
)
from tests.runs_by_id import run


@pytest.mark.parametrize(
    ("observer", "message"),
    [
        ("activation_post_process_1", "the output is not observed"),
        ("activation_post_process_0", "input x is not observed"),
    ],
)
def test_a_missing_observer_is_caught_by_observed(observer: str, message: str) -> None:
    outcomes = judged(run(LINEAR), after("prepare", erased(observer)))
    assert "observed" in failed(outcomes)
    assert message in outcomes["observed"].detail


@pytest.mark.parametrize(
    ("number", "message"),
    [(0, "input x is observed as qint8, not quint8"), (1, "the output is observed as qint8, not quint8")],
)
def test_an_observer_of_another_dtype_is_caught_by_observed(number: int, message: str) -> None:
    def other_dtype(graph: GraphModule) -> None:
        graph.get_submodule(f"activation_post_process_{number}").dtype = torch.qint8  # type: ignore[assignment]

    outcomes = judged(run(LINEAR), after("prepare", other_dtype))
    assert outcomes["observed"].detail == message


@pytest.mark.parametrize(
    ("name", "observer", "message"),
    [
        (LINEAR, "activation_post_process_1", "activation_post_process_1 observes the codes 0 to 126, not 0 to 127"),
        (
            LINEAR_QAT,
            "activation_post_process_0.activation_post_process",
            "activation_post_process_0 observes the codes 0 to 126, not 0 to 127",
        ),
        (
            LINEAR_QAT,
            "op.weight_fake_quant",
            "op.weight_fake_quant observes the codes -128 to 126, not -128 to 127",
        ),
    ],
)
def test_an_observer_with_another_quant_max_is_caught_by_observed(name: str, observer: str, message: str) -> None:
    def narrower(graph: GraphModule) -> None:
        graph.get_submodule(observer).quant_max -= 1  # type: ignore[operator, assignment]

    outcomes = judged(run(name), after("prepare", narrower))
    assert outcomes["observed"].detail == message


def test_a_fake_quantize_that_is_disabled_is_caught_by_observed() -> None:
    def disabled(graph: GraphModule) -> None:
        graph.get_submodule("activation_post_process_0").disable_fake_quant()  # type: ignore[operator]
        graph.get_submodule("op.weight_fake_quant").disable_observer()  # type: ignore[operator]

    outcomes = judged(run(LINEAR_QAT), after("prepare", disabled))
    assert outcomes["observed"].detail == (
        "activation_post_process_0 does not fake-quantize; op.weight_fake_quant does not observe"
    )


def shared(graph: GraphModule) -> None:
    call(graph, "activation_post_process_1").target = "activation_post_process_0"


def test_an_observer_shared_against_the_observation_type_is_caught_by_observed() -> None:
    outcomes = judged(run(LINEAR), after("prepare", shared))
    assert outcomes["observed"].detail == (
        "input and output share an observer, against OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT"
    )


def test_an_observer_not_shared_against_the_observation_type_is_caught_by_observed() -> None:
    def copied(graph: GraphModule) -> None:
        last = call(graph, "activation_post_process_1")
        graph.add_submodule("another", copy.deepcopy(graph.get_submodule(str(last.target))))
        last.target = "another"

    outcomes = judged(run(POOLING), after("prepare", copied))
    assert outcomes["observed"].detail == (
        "input and output do not share an observer, against OUTPUT_SHARE_OBSERVER_WITH_INPUT"
    )


def test_an_observer_that_is_not_dynamic_is_caught_by_observed() -> None:
    def static(graph: GraphModule) -> None:
        graph.get_submodule("activation_post_process_0").is_dynamic = False  # type: ignore[assignment]

    outcomes = judged(run(DYNAMIC), after("prepare", static))
    assert outcomes["observed"].detail == "the observer of input x is not dynamic"


def test_a_pattern_that_is_not_fused_is_caught_by_observed() -> None:
    def unfused(graph: GraphModule) -> None:
        graph.set_submodule("op", nn.Sequential(*graph.get_submodule("op").children()))

    outcomes = judged(run(LINEAR_RELU), after("prepare", unfused))
    assert "observed" in failed(outcomes)
    assert outcomes["observed"].detail == "no LinearReLU in the ptq model, which the config declares"


def test_a_layer_that_is_not_trained_is_caught_by_observed() -> None:
    def plain(graph: GraphModule) -> None:
        trained = graph.get_submodule("op")
        layer = nn.Linear(16, 8)
        layer.load_state_dict({"weight": trained.weight, "bias": trained.bias})
        layer.qconfig = trained.qconfig  # type: ignore[assignment]
        graph.set_submodule("op", layer)

    outcomes = judged(run(LINEAR_QAT), after("prepare", plain))
    assert outcomes["observed"].detail == "no Linear in the qat model, which the config declares"


@pytest.mark.parametrize(
    ("stage", "message"),
    [("prepare", "prepare raises ValueError: bad"), ("calibrate", "the observed model raises ValueError: bad")],
)
def test_a_model_that_cannot_be_observed_is_caught_by_observed(stage: str, message: str) -> None:
    def refuses(*_: object) -> GraphModule:
        raise ValueError("bad")

    outcomes = judged(run(LINEAR), instead(stage, refuses))
    assert outcomes["observed"].detail == message


def test_a_module_of_a_third_party_is_named_with_its_package() -> None:
    class Linear(nn.Linear):
        """A QAT module that is named as the one it replaces."""

    name = f"{__name__}.Linear"
    assert (class_name(nn.Linear), class_name(Linear)) == ("Linear", name)
    row = row_of(run(LINEAR_QAT), MissingModule("observed", name, "qat"))
    text = script(run(LINEAR_QAT), row, None)
    assert f"'{name}' not in [type(module).__module__ + '.' + type(module).__name__ for " in text
