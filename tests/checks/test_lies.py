"""A model that lies is caught, by the check that should; a config that is not kept to is caught too."""

import copy
import dataclasses
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.qat as nnqat
from torch import Tensor, nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, ObservationType
from torch.fx import GraphModule, Node

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.checks.evidence import Outcome
from conformance.checks.judge import CHECKS, Judge
from conformance.configs import dtypes
from conformance.engines.registry import engine
from conformance.execution import batch
from conformance.host.isolation import Done, run_isolated
from conformance.models import build, fx

LINEAR = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@fbgemm"
LINEAR_QAT = "fbgemm/nn.Linear/static-quint8/qat/default/exact@fbgemm"
LINEAR_RELU = "fbgemm/nn.Linear+nn.ReLU/static-quint8/ptq/default/exact@fbgemm"
DYNAMIC = "fbgemm/nn.Linear/dynamic-quint8/ptq/default/exact@fbgemm"
RELU = "fbgemm/nn.ReLU/static-quint8/ptq/default/exact@fbgemm"
SIGMOID = "fbgemm/nn.Sigmoid/static-quint8/ptq/default/exact@fbgemm"
POOLING = "fbgemm/nn.MaxPool2d/static-quint8/ptq/default/exact@fbgemm"
CONV = "fbgemm/nn.Conv2d/static-quint8/ptq/default/exact@fbgemm"
SYMMETRIC = "qnnpack/nn.Linear/static-qint8/ptq/default/exact@fbgemm"

Stage = Callable[..., Any]
Lie = tuple[str, Callable[[Stage], Stage]]
"""A stage of the pipeline and what its honest function is replaced with."""


@cache
def run(name: str) -> Run:
    found = runs(backend(name.partition("/")[0]), [name.rpartition("@")[2]])
    return next(one for one in found if one.id == name)


def judged(subject: Run, *lies: Lie) -> dict[str, Outcome]:
    """Take a run through the pipeline in a child, with lies in place of stages, and return what every check says."""
    if (reason := engine(subject.engine).unavailable()) is not None:
        pytest.skip(f"{subject.engine}: {reason}")
    batch.warm_up()

    def work(one: Run) -> dict[str, Outcome]:
        for stage, lie in lies:
            setattr(fx, stage, lie(getattr(fx, stage)))
        evidence = Judge().evidence(one)
        return {name: check(evidence) for name, check in CHECKS.items()}

    (outcome,) = run_isolated([subject], work)
    assert isinstance(outcome, Done), outcome
    return outcome.value


def failed(outcomes: dict[str, Outcome]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome.result == "fail"}


def after(stage: str, change: Callable[[GraphModule], GraphModule | None]) -> Lie:
    """A stage whose product is changed."""

    def lie(honest: Stage) -> Stage:
        def lying(*arguments: Any) -> GraphModule:
            product: GraphModule = honest(*arguments)
            changed = change(product)
            result = product if changed is None else changed
            if isinstance(result, GraphModule):
                result.recompile()
            return result

        return lying

    return stage, lie


def instead(stage: str, other: Stage) -> Lie:
    return stage, lambda honest: other


def call(graph: GraphModule, name: str) -> Node:
    """The node of a graph whose name begins so; the last one if there are several."""
    found: list[Node] = [node for node in graph.graph.nodes if node.name.startswith(name)]
    return found[-1]


def with_codes(change: Callable[[Tensor], Tensor]) -> Lie:
    """A lowered model that changes its codes before they are dequantized."""

    def lying(x: Tensor) -> Tensor:
        codes = change(x.int_repr().clone())
        return torch._make_per_tensor_quantized_tensor(codes, x.q_scale(), x.q_zero_point())

    return after("lower", lambda graph: applied(graph, lying))


def applied(graph: GraphModule, function: Callable[[Tensor], Tensor]) -> None:
    """Apply a function to what is dequantized at the end."""
    last = call(graph, "dequantize")
    with graph.graph.inserting_before(last):
        made = graph.graph.call_function(function, (last.args[0],))
    last.args = (made,)


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def erased(name: str) -> Callable[[GraphModule], None]:
    """Take a node out of a graph, and what it is given into its place."""

    def erase(graph: GraphModule) -> None:
        node = call(graph, name)
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        graph.graph.erase_node(node)

    return erase


@pytest.mark.parametrize("name", [LINEAR, LINEAR_QAT, LINEAR_RELU, DYNAMIC, RELU, SIGMOID, POOLING, CONV])
def test_an_honest_model_passes_every_check(name: str) -> None:
    assert {check: outcome.result for check, outcome in judged(run(name)).items()} == dict.fromkeys(CHECKS, "pass")


def first_code_one_up(codes: Tensor) -> Tensor:
    codes.view(-1)[0] += 1
    return codes


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


def test_a_reference_model_that_is_not_lowered_is_caught_by_lowered_alone() -> None:
    outcomes = judged(run(LINEAR), ("lower", lambda honest: fx.reference))
    assert failed(outcomes) == {"lowered"}
    assert outcomes["lowered"].detail.startswith("ran in float: ")


def test_a_kernel_that_goes_through_float_and_back_is_caught_by_lowered_alone() -> None:
    def through_float(x: Tensor) -> Tensor:
        y = x.dequantize() * 1.0
        return torch.quantize_per_tensor(y, x.q_scale(), x.q_zero_point(), x.dtype)

    outcomes = judged(run(LINEAR), after("lower", lambda graph: applied(graph, through_float)))
    assert failed(outcomes) == {"lowered"}
    assert outcomes["lowered"].detail == "ran in float: aten.mul"


def test_a_kernel_that_converts_inside_of_itself_is_caught_by_lowered_alone() -> None:
    def concatenated(x: Tensor) -> Tensor:
        return torch.cat([x[:2], x[2:]])

    outcomes = judged(run(LINEAR), after("lower", lambda graph: applied(graph, concatenated)))
    assert failed(outcomes) == {"lowered"}
    assert "aten.cat > aten.dequantize" in outcomes["lowered"].detail


def test_a_dynamic_layer_that_stays_in_float_is_caught_by_lowered() -> None:
    outcomes = judged(run(DYNAMIC), after("lower", lambda graph: graph.set_submodule("op", nn.Linear(16, 8))))
    assert "lowered" in failed(outcomes)
    assert "no quantized kernel ran" in outcomes["lowered"].detail


def test_a_model_that_cannot_be_lowered_is_caught_by_lowered() -> None:
    def refuses(*_: object) -> GraphModule:
        raise NotImplementedError("no kernel\nfor this")

    outcomes = judged(run(LINEAR), instead("lower", refuses))
    assert failed(outcomes) == {"lowered"}
    assert outcomes["lowered"].detail == "lower raises NotImplementedError: no kernel"
    assert [outcomes[name].result for name in ("numerics", "accuracy", "stable")] == ["skip"] * 3


def test_a_kernel_that_raises_is_caught_by_lowered() -> None:
    def raises(x: Tensor) -> Tensor:
        raise RuntimeError("expected QUInt8")

    outcomes = judged(run(LINEAR), after("lower", lambda graph: applied(graph, raises)))
    assert failed(outcomes) == {"lowered"}
    assert outcomes["lowered"].detail.startswith("execute raises RuntimeError: expected QUInt8")


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
            made = graph.graph.call_function(torch.clone, (last,))
        last.replace_all_uses_with(made, delete_user_cb=lambda node: node is not made)

    outcomes = judged(run(LINEAR), after("lower", stays_float))
    assert outcomes["numerics"].detail == "gives float values, the golden has the other"


def test_an_output_that_is_left_quantized_is_caught_by_lowered_alone() -> None:
    def left(graph: GraphModule) -> None:
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        output.args = (output.args[0].args[0],)  # type: ignore[union-attr]

    outcomes = judged(run(LINEAR), after("lower", left))
    assert failed(outcomes) == {"lowered"}
    assert outcomes["lowered"].detail == "output 0 is left quantized, the float model gives float"


def test_an_output_that_is_quantized_per_channel_fits_nothing_and_is_caught_by_numerics_alone() -> None:
    def by_channel(x: Tensor) -> Tensor:
        scales, zero_points = torch.full((8,), x.q_scale(), dtype=torch.float64), torch.full((8,), x.q_zero_point())
        return torch._make_per_channel_quantized_tensor(x.int_repr(), scales, zero_points, 1)

    outcomes = judged(run(LINEAR), after("lower", lambda graph: applied(graph, by_channel)))
    assert failed(outcomes) == {"numerics"}
    assert outcomes["numerics"].detail == "per_channel_affine, golden per_tensor_affine"


def test_a_kernel_that_ends_the_interpreter_is_caught_by_lowered() -> None:
    outcomes = judged(run(LINEAR), after("lower", lambda graph: applied(graph, lambda x: sys.exit())))
    assert failed(outcomes) == {"lowered"}
    assert outcomes["lowered"].detail.startswith("execute raises SystemExit")


def test_a_kernel_that_writes_to_its_input_is_caught_by_stable_alone() -> None:
    library = torch.library.Library("lies", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("relu(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
    library.impl("relu", lambda x: x.relu_().clone(), "QuantizedCPU")  # type: ignore[no-untyped-call]

    def lie(graph: GraphModule) -> None:
        graph.set_submodule("op", Applied(torch.ops.lies.relu))

    outcomes = judged(run(RELU), after("lower", lie))
    assert failed(outcomes) == {"stable"}
    assert outcomes["stable"].detail == "lies.relu writes to its tensor 0"


def test_memory_that_is_used_again_by_the_next_call_is_caught_by_stable_alone() -> None:
    kept: list[Tensor] = []

    def same(x: Tensor) -> Tensor:
        kept[:] = kept or [x]
        return kept[0].copy_(x)

    outcomes = judged(run(LINEAR), after("lower", lambda graph: applied(graph, same)))
    assert failed(outcomes) == {"stable"}
    assert outcomes["stable"].detail.startswith("another call changes ")


def test_an_observer_that_is_too_coarse_is_caught_by_accuracy_and_by_what_the_oracle_chooses() -> None:
    def coarse(graph: GraphModule) -> None:
        call_of = call(graph, "activation_post_process_0")
        graph.get_submodule(str(call_of.target)).eps.fill_(8.0)  # type: ignore[operator, union-attr]

    outcomes = judged(run(LINEAR), after("prepare", coarse))
    assert failed(outcomes) == {"accuracy", "numerics", "reference"}
    assert outcomes["accuracy"].detail.endswith("dB is below 20 dB")
    assert "quantizes nothing with the scale 0.0625 and zero point 64.0 of x" in outcomes["reference"].detail


def test_the_float_model_is_computed_in_float64_with_nothing_fused() -> None:
    given = build.subject(run(LINEAR_RELU))
    (output,) = build.float_outputs(given)
    assert output.dtype is torch.float64
    x, layer = given.inputs[0].double(), given.model.op
    assert isinstance(layer, nn.Linear)
    assert torch.equal(output, torch.relu(x @ layer.weight.double().T + layer.bias.double()))


@pytest.mark.parametrize(("name", "floor"), [(LINEAR, 20), (LINEAR.replace("exact", "typical"), 24)])
def test_noise_below_the_floor_of_its_profile_is_caught_by_accuracy(name: str, floor: int) -> None:
    def noisy(graph: GraphModule) -> None:
        last = call(graph, "dequantize")
        with graph.graph.inserting_after(last):
            made = graph.graph.call_function(torch.mul, (last, 1.09))
        last.replace_all_uses_with(made, delete_user_cb=lambda node: node is not made)

    outcomes = judged(run(name), after("lower", noisy))
    assert outcomes["accuracy"].result == ("pass" if floor == 20 else "fail")
    assert floor == 20 or outcomes["accuracy"].detail.endswith(f"is below {floor} dB")


def every_second() -> Callable[[Tensor], Tensor]:
    """One code up in every second call."""
    calls: list[int] = []

    def change(codes: Tensor) -> Tensor:
        calls.append(1)
        return first_code_one_up(codes) if len(calls) % 2 == 0 else codes

    return change


def test_an_output_that_is_not_the_same_twice_is_caught_by_stable_alone() -> None:
    outcomes = judged(run(LINEAR), with_codes(every_second()))
    assert failed(outcomes) == {"stable"}
    assert "second run changes 1 of 32 values" in outcomes["stable"].detail


def test_a_kernel_that_does_not_write_all_of_its_output_is_caught_by_stable() -> None:
    def unwritten(codes: Tensor) -> Tensor:
        result = torch.empty(40_000, dtype=torch.uint8)
        codes.view(-1)[-1] = result[20_000]
        return codes

    outcomes = judged(run(LINEAR), with_codes(unwritten))
    assert "second run changes 1 of 32 values" in outcomes["stable"].detail


def test_a_result_that_depends_on_the_memory_format_is_caught_by_stable_alone() -> None:
    def choosy(x: Tensor, given: Tensor) -> Tensor:
        codes = x.int_repr().clone()
        if not given.is_contiguous():
            codes += 1
        return torch._make_per_tensor_quantized_tensor(codes, x.q_scale(), x.q_zero_point())

    def lie(graph: GraphModule) -> None:
        last, (first, *_) = call(graph, "dequantize"), graph.graph.nodes
        with graph.graph.inserting_before(last):
            made = graph.graph.call_function(choosy, (last.args[0], first))
        last.args = (made,)

    outcomes = judged(run(CONV), after("lower", lie))
    assert failed(outcomes) == {"stable"}
    assert outcomes["stable"].detail.startswith("channels_last changes ")


def test_a_model_that_does_not_load_its_state_is_caught_by_stable_alone() -> None:
    def forgets(graph: GraphModule) -> None:
        graph.get_submodule("op")._load_from_state_dict = lambda *_, **__: None  # type: ignore[method-assign, assignment]

    outcomes = judged(run(LINEAR), after("lower", forgets))
    assert failed(outcomes) == {"stable"}
    assert outcomes["stable"].detail.startswith("state_dict changes ")


def test_a_model_that_cannot_load_its_state_is_caught_by_stable_alone() -> None:
    def refuses(graph: GraphModule) -> None:
        def load(*_: object, **__: object) -> None:
            raise KeyError("packed_params")

        graph.get_submodule("op")._load_from_state_dict = load  # type: ignore[method-assign, assignment]

    outcomes = judged(run(LINEAR), after("lower", refuses))
    assert failed(outcomes) == {"stable"}
    assert outcomes["stable"].detail == "state_dict raises KeyError: 'packed_params'"


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
def test_an_observer_with_a_code_too_few_is_caught_by_observed(name: str, observer: str, message: str) -> None:
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


def test_a_root_module_that_stays_float_is_caught_by_reference() -> None:
    outcomes = judged(run(LINEAR), after("reference", lambda graph: graph.set_submodule("op", nn.Linear(16, 8))))
    assert outcomes["reference"].detail.startswith("no Linear in the reference model; ")


def test_weights_of_another_dtype_are_caught_by_reference() -> None:
    def other_dtype(graph: GraphModule) -> None:
        graph.get_submodule("op").weight_dtype = torch.qint32  # type: ignore[assignment]

    outcomes = judged(run(LINEAR), after("reference", other_dtype))
    assert "weight quantized to qint32, not qint8" in outcomes["reference"].detail


def test_activations_of_another_dtype_are_caught_by_reference() -> None:
    def other_dtype(graph: GraphModule) -> None:
        for node in graph.graph.nodes:
            node.args = tuple(torch.qint32 if argument is torch.quint8 else argument for argument in node.args)

    outcomes = judged(run(LINEAR), after("reference", other_dtype))
    assert "quantizes to qint32" in outcomes["reference"].detail


def test_a_reference_model_that_quantizes_nothing_is_caught_by_reference() -> None:
    def float_model(prepared: GraphModule, _: BackendConfig) -> GraphModule:
        graph = copy.deepcopy(prepared)
        for name in ("activation_post_process_1", "activation_post_process_0"):
            erased(name)(graph)
        graph.recompile()
        return graph

    outcomes = judged(run(RELU), instead("reference", float_model))
    assert outcomes["reference"].detail.startswith("the reference model quantizes nothing; ")


def test_a_model_that_has_no_reference_is_caught_by_reference() -> None:
    def refuses(*_: object) -> GraphModule:
        raise AssertionError("no reference module")

    outcomes = judged(run(LINEAR), instead("reference", refuses))
    assert outcomes["reference"].detail == "convert_to_reference raises AssertionError: no reference module"


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (2.0**-8, "weight has code -128, below quant_min -127"),
        (2.0**-13, "weight scale 0.0001220703125 is below 0.000244140625"),
    ],
)
def test_weights_beyond_their_bounds_are_caught_by_constraints(scale: float, message: str) -> None:
    def other_scale(graph: GraphModule) -> None:
        graph.get_submodule("op").weight_scale = torch.tensor(scale)

    assert "constraints" not in failed(judged(run(SYMMETRIC)))
    outcomes = judged(run(SYMMETRIC), after("reference", other_scale))
    assert "constraints" in failed(outcomes)
    assert message in outcomes["constraints"].detail


def test_an_output_that_misses_its_fixed_qparams_is_caught_by_constraints() -> None:
    def lying(x: Tensor) -> Tensor:
        return torch._make_per_tensor_quantized_tensor(x.int_repr(), 2.0**-7, 3)

    outcomes = judged(run(SIGMOID), after("lower", lambda graph: applied(graph, lying)))
    assert "engine's output scale is 0.0078125, not 0.00390625" in outcomes["constraints"].detail
    assert "engine's output zero point is 3, not 0" in outcomes["constraints"].detail


def with_entry(name: str, change: Callable[[BackendPatternConfig], BackendPatternConfig]) -> dict[str, Outcome]:
    """Judge a run whose backend's config holds another entry than the one that the claim is of."""
    subject = run(name)
    other = change(copy.copy(subject.claim.entry))
    entries = [other if entry is subject.claim.entry else entry for entry in subject.backend.config.configs]
    config = BackendConfig("faulty").set_backend_pattern_configs(entries)
    rest = BackendConfig("rest").set_backend_pattern_configs([entry for entry in entries if entry is not other])
    faulty = dataclasses.replace(subject, backend=dataclasses.replace(subject.backend, config=config))
    return judged(faulty, instead("without", lambda *_: iter([rest])))


@pytest.mark.parametrize("name", [LINEAR, LINEAR_QAT, LINEAR_RELU, RELU, SIGMOID])
def test_a_config_whose_entry_is_merely_copied_passes_every_check(name: str) -> None:
    assert failed(with_entry(name, lambda entry: entry)) == set()


@pytest.mark.parametrize("name", [LINEAR, LINEAR_QAT, LINEAR_RELU, RELU, SIGMOID, DYNAMIC])
def test_an_entry_that_is_not_there_is_caught_by_matched(name: str) -> None:
    subject = run(name)
    (*_, rest) = fx.without(subject.backend.config, subject)
    faulty = dataclasses.replace(subject, backend=dataclasses.replace(subject.backend, config=rest))
    assert "matched" in failed(judged(faulty))


def test_an_entry_that_changes_nothing_is_caught_by_matched_alone() -> None:
    """As when another entry does the same; a second of the same pattern cannot be in one config."""
    subject = run(RELU)
    outcomes = judged(subject, instead("without", lambda *_: iter([subject.backend.config])))
    assert failed(outcomes) == {"matched"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (LINEAR, ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT),
        (RELU, ObservationType.INPUT_OUTPUT_NOT_OBSERVED),
        (POOLING, ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT),
    ],
)
def test_another_observation_type_is_caught_by_observed(name: str, kind: ObservationType) -> None:
    assert "observed" in failed(with_entry(name, lambda entry: entry.set_observation_type(kind)))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        (LINEAR, dtypes.STATIC_QINT8_SYMMETRIC_WEIGHTED),
        (LINEAR, dtypes.DYNAMIC_FLOAT16),
        (LINEAR, dtypes.DYNAMIC_QUINT8),
        (DYNAMIC, dtypes.STATIC_QUINT8_WEIGHTED),
        (RELU, dtypes.STATIC_QINT8_SYMMETRIC),
    ],
)
def test_another_dtype_config_is_caught_by_observed(name: str, other: Any) -> None:
    assert "observed" in failed(with_entry(name, lambda entry: entry.set_dtype_configs([other])))


def test_another_fused_module_is_caught_by_observed() -> None:
    class Other(nni.LinearReLU):
        pass

    def fused(is_qat: bool, linear: nn.Linear, relu: nn.ReLU) -> Other:
        return Other(linear, relu)  # type: ignore[no-untyped-call]

    def change(entry: BackendPatternConfig) -> BackendPatternConfig:
        return entry.set_fused_module(Other).set_fuser_method(fused)

    # a subclass is not the declared class
    assert "observed" in failed(with_entry(LINEAR_RELU, change))


def test_another_training_module_is_caught_by_observed() -> None:
    class Other(nnqat.Linear):
        pass

    outcomes = with_entry(LINEAR_QAT, lambda entry: entry.set_qat_module(Other))
    assert "no Linear in the qat model, which the config declares" in outcomes["observed"].detail


def test_a_pattern_that_cannot_occur_is_caught_by_matched_alone() -> None:
    outcomes = judged(run("qnnpack/Tensor.hardsigmoid/static-quint8/ptq/default/exact@fbgemm"))
    assert failed(outcomes) == {"matched"}
    assert outcomes["matched"].detail.startswith("the pattern cannot occur: the float model raises AttributeError")
    assert outcomes["numerics"].result == "skip"
