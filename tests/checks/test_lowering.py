"""Models that compute in float, or cannot be lowered or executed, fail the check `lowered`."""

import sys

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from conformance.models import fx
from tests.lies import DYNAMIC, LINEAR, after, applied, failed, instead, judged
from tests.runs_by_id import run


def test_a_reference_model_that_is_not_lowered_is_caught_by_lowered_alone() -> None:
    outcomes = judged(run(LINEAR), ("lower", lambda honest: fx.reference))
    assert failed(outcomes) == {"lowered"}
    assert outcomes["lowered"].detail.startswith("ran in float: ")


def test_an_operator_that_computes_in_float_is_caught_by_lowered_alone() -> None:
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


def test_an_output_that_is_left_quantized_is_caught_by_lowered_alone() -> None:
    def return_quantized(graph: GraphModule) -> None:
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        output.args = (output.args[0].args[0],)  # type: ignore[union-attr]

    outcomes = judged(run(LINEAR), after("lower", return_quantized))
    assert failed(outcomes) == {"lowered"}
    assert outcomes["lowered"].detail == "output 0 is left quantized, the float model gives float"


def test_a_kernel_that_ends_the_interpreter_is_caught_by_lowered() -> None:
    outcomes = judged(run(LINEAR), after("lower", lambda graph: applied(graph, lambda x: sys.exit())))
    assert failed(outcomes) == {"lowered"}
    assert outcomes["lowered"].detail.startswith("execute raises SystemExit")


UNASKED = "fbgemm/nn.ConvTranspose2d/static-quint8/ptq/unasked/contexts@fbgemm"


def test_what_the_mapping_leaves_in_float_between_quantized_layers_conforms_in_float() -> None:
    assert run(UNASKED).recipe.mapping.endswith(".set_object_type(nn.ConvTranspose2d, None)")
    outcomes = judged(run(UNASKED))
    assert {name: outcome.result for name, outcome in outcomes.items()} == dict.fromkeys(
        ("lowered", "numerics", "asked"), "pass"
    )


def test_an_operator_that_is_quantized_unasked_is_caught_by_asked_alone() -> None:
    outcomes = judged(run(UNASKED.replace("nn.ConvTranspose2d", "nn.ELU")))
    assert failed(outcomes) == {"asked"}
    assert outcomes["asked"].detail == "the mapping has no qconfig for it, and quantized.elu computes it all the same"


def test_layers_beside_an_unasked_operator_have_to_be_quantized() -> None:
    outcomes = judged(run(UNASKED), ("lower", lambda honest: fx.reference))
    assert failed(outcomes) == {"lowered"}
    assert outcomes["lowered"].detail.startswith("ran in float: aten.convolution")
