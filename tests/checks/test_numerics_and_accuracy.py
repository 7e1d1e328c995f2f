"""Models with false codes, qparams, values or shapes fail numerics, or accuracy."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from conformance.checks.evidence import Back, Evidence, Expectation, Front
from conformance.checks.numerics import accuracy, sqnr_db
from conformance.goldens.golden import Expected, Golden
from conformance.models import build
from conformance.models.trace import Execution, Output
from conformance.results.profiles import ASKED_FOR, EXACT
from tests.lies import (
    CONV,
    DYNAMIC,
    LINEAR,
    LINEAR_QAT,
    LINEAR_RELU,
    POOLING,
    RELU,
    SIGMOID,
    after,
    applied,
    call,
    failed,
    first_code_one_up,
    judged,
    with_codes,
)
from tests.runs_by_id import run


@pytest.mark.parametrize("name", [LINEAR, LINEAR_QAT, LINEAR_RELU, DYNAMIC, RELU, SIGMOID, POOLING, CONV])
def test_an_honest_model_passes_every_check(name: str) -> None:
    assert {check: outcome.result for check, outcome in judged(run(name)).items()} == dict.fromkeys(
        (*EXACT.checks, *ASKED_FOR), "pass"
    )


def test_one_code_off_by_one_is_caught_by_numerics_alone() -> None:
    outcomes = judged(run(LINEAR), with_codes(first_code_one_up))
    assert failed(outcomes) == {"numerics"}
    assert outcomes["numerics"].detail.startswith("1 of 32 codes differ (3.1%), by up to 1 steps: (0, 0) got ")


def test_one_element_of_hundreds_off_by_one_is_caught_by_numerics_alone() -> None:
    def one_down(codes: Tensor) -> Tensor:
        codes[1, 1, 1, 0] -= 1
        return codes

    outcomes = judged(run(CONV), with_codes(one_down))
    assert failed(outcomes) == {"numerics"}
    assert outcomes["numerics"].detail.startswith("1 of 896 codes differ (0.1%), by up to 1 steps: (1, 1, 1, 0) got ")


@pytest.mark.parametrize(("scale", "zero_point"), [(1 + 2.0**-52, 0), (1.0, 1), (2.0, 0)])
def test_other_qparams_are_caught_even_where_the_values_are_nearly_the_same(scale: float, zero_point: int) -> None:
    def lying(x: Tensor) -> Tensor:
        codes = (x.int_repr().int() + zero_point).clamp(0, 255).byte()
        return torch._make_per_tensor_quantized_tensor(codes, x.q_scale() * scale, x.q_zero_point() + zero_point)

    outcomes = judged(run(LINEAR), after("lower", lambda graph: applied(graph, lying)))
    assert "numerics" in failed(outcomes)
    assert outcomes["numerics"].detail.startswith("scale ")


def test_a_lost_relu_is_caught_by_numerics() -> None:
    outcomes = judged(run(RELU), after("lower", lambda graph: graph.set_submodule("op", nn.Identity())))
    assert "numerics" in failed(outcomes)


def test_a_dropped_bias_is_caught_by_numerics() -> None:
    def dropped(graph: GraphModule) -> None:
        layer = graph.get_submodule("op")
        layer.set_weight_bias(layer.weight(), None)  # type: ignore[operator]

    assert "numerics" in failed(judged(run(LINEAR), after("lower", dropped)))


def test_a_code_that_wraps_around_is_caught_by_numerics() -> None:
    outcomes = judged(run(LINEAR), with_codes(lambda codes: torch.where(codes == codes.max(), codes.min(), codes)))
    assert "numerics" in failed(outcomes)


def test_an_output_of_another_shape_is_caught_by_numerics_and_accuracy() -> None:
    outcomes = judged(run(LINEAR), after("lower", lambda graph: applied(graph, lambda x: x[:1])))
    assert {"numerics", "accuracy"} <= failed(outcomes)
    assert outcomes["numerics"].detail == "shape (1, 8), golden (4, 8)"


def test_an_output_too_many_is_caught_by_numerics() -> None:
    def doubled(graph: GraphModule) -> None:
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        output.args = ((output.args[0], output.args[0]),)

    outcomes = judged(run(LINEAR), after("lower", doubled))
    assert outcomes["numerics"].detail == "2 outputs, golden 1"


def test_an_output_that_stays_in_float_is_caught_by_numerics() -> None:
    def stays_float(graph: GraphModule) -> None:
        last = call(graph, "dequantize")
        with graph.graph.inserting_after(last):
            inserted = graph.graph.call_function(torch.clone, (last,))
        last.replace_all_uses_with(inserted, delete_user_cb=lambda node: node is not inserted)

    outcomes = judged(run(LINEAR), after("lower", stays_float))
    assert outcomes["numerics"].detail == "gives float values, the golden has the other"


def test_an_output_that_is_quantized_per_channel_is_caught_by_numerics_alone() -> None:
    def by_channel(x: Tensor) -> Tensor:
        scales, zero_points = torch.full((8,), x.q_scale(), dtype=torch.float64), torch.full((8,), x.q_zero_point())
        return torch._make_per_channel_quantized_tensor(x.int_repr(), scales, zero_points, 1)

    outcomes = judged(run(LINEAR), after("lower", lambda graph: applied(graph, by_channel)))
    assert failed(outcomes) == {"numerics"}
    assert outcomes["numerics"].detail == "per_channel_affine, golden per_tensor_affine"


def test_an_observer_that_is_too_coarse_is_caught_by_accuracy_and_by_the_oracles_qparams() -> None:
    def coarse(graph: GraphModule) -> None:
        call_of = call(graph, "activation_post_process_0")
        graph.get_submodule(str(call_of.target)).eps.fill_(8.0)  # type: ignore[operator, union-attr]

    outcomes = judged(run(LINEAR), after("prepare", coarse))
    assert failed(outcomes) == {"accuracy", "numerics", "reference"}
    assert outcomes["accuracy"].detail.endswith("dB is below 20 dB")
    assert "quantizes nothing with the scale 0.0625 and zero point 64.0 of x" in outcomes["reference"].detail


def test_the_float_model_is_computed_in_float64_with_nothing_fused() -> None:
    subject = build.subject(run(LINEAR_RELU))
    (output,) = build.float_outputs(subject)
    assert output.dtype is torch.float64
    x, layer = subject.inputs[0].double(), subject.model.op
    assert isinstance(layer, nn.Linear)
    assert torch.equal(output, torch.relu(x @ layer.weight.double().T + layer.bias.double()))


@pytest.mark.parametrize(("name", "floor"), [(LINEAR, 20), (LINEAR.replace("exact", "typical"), 24)])
def test_noise_below_the_floor_of_its_profile_is_caught_by_accuracy(name: str, floor: int) -> None:
    def noisy(graph: GraphModule) -> None:
        last = call(graph, "dequantize")
        with graph.graph.inserting_after(last):
            inserted = graph.graph.call_function(torch.mul, (last, 1.09))
        last.replace_all_uses_with(inserted, delete_user_cb=lambda node: node is not inserted)

    outcomes = judged(run(name), after("lower", noisy))
    assert outcomes["accuracy"].result == ("pass" if floor == 20 else "fail")
    assert floor == 20 or outcomes["accuracy"].detail.endswith(f"is below {floor} dB")


@pytest.mark.parametrize(
    ("got", "wanted", "ratio"),
    [([3.0, 4.0], [3.0, 4.0], 200.0), ([3.0, 4.5], [3.0, 4.0], 20.0), ([0.0, 0.1], [0.0, 0.0], -math.inf)],
)
def test_sqnr_is_in_decibels(got: list[float], wanted: list[float], ratio: float) -> None:
    # 25 over 0.25 is 20 dB
    assert sqnr_db([torch.tensor(got)], [torch.tensor(wanted)]) == pytest.approx(ratio)


def test_sqnr_of_infinite_noise_is_nan() -> None:
    assert math.isnan(sqnr_db([torch.tensor([math.inf])], [torch.tensor([1.0])]))


@pytest.mark.parametrize(("batch", "golden", "result"), [(1, 15.0, "skip"), (1, 100.0, "fail"), (None, 15.0, "fail")])
def test_a_batch_beyond_calibration_skips_accuracy_where_exact_arithmetic_saturates_too(
    batch: int | None, golden: float, result: str
) -> None:
    case = run(LINEAR)
    assert case.variant is not None
    case = dataclasses.replace(case, variant=dataclasses.replace(case.variant, batch=batch))
    quantized = torch.quantize_per_tensor(torch.tensor([15.0]), 1.0, 0, torch.quint8)
    evidence = Evidence(
        case,
        Front(float_outputs=(torch.tensor([100.0]),)),
        Back(execution=Execution((), (Output(quantized.dequantize(), quantized),))),
        Expectation(Golden((Expected(torch.tensor([golden]), torch.tensor([golden])),), ("",))),
    )
    assert accuracy(evidence).result == result
