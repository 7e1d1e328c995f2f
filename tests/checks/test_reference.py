"""False reference models fail the checks `reference` and `constraints`."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from tests.lies import LINEAR, RELU, SIGMOID, SYMMETRIC, after, applied, erased, failed, instead, judged
from tests.runs_by_id import run


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
