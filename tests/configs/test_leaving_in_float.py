"""How each quantizer is told to leave a module in float. It is tried in the environments that have the quantizer."""

import pytest
import torch
from torch import Tensor, nn
from torch.fx import Node

from conformance.cases.claims import backend
from conformance.configs.registry import QUANTIZERS
from conformance.models import pt2e

LEAVING = [name for name in QUANTIZERS if pt2e.spec_of(backend(name)).leaving]


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x))
        return y


def annotated(quantizer: object) -> list[bool]:
    """Whether each of the convolutions is annotated."""
    inputs = (torch.zeros(2, 4, 9, 9),)
    graph = pt2e.exported_network(Network().eval(), inputs)
    quantizer.annotate(graph)  # type: ignore[attr-defined]
    convolutions: list[Node] = [node for node in graph.graph.nodes if "conv2d" in str(node.target)]
    return [pt2e.is_quantized(node) for node in convolutions]


def test_all_quantizers_but_one_have_a_way() -> None:
    assert {*QUANTIZERS} - {*LEAVING} == {"cortexm"}


@pytest.mark.parametrize("name", LEAVING)
def test_the_module_stays_in_float_and_no_other(name: str) -> None:
    spec = pt2e.spec_of(backend(name))
    try:
        quantizer = pt2e.default_quantizer(spec)
    except ImportError as error:
        pytest.skip(str(error))
    assert annotated(quantizer) == [True, True]
    told = eval(f"quantizer.{spec.leaving}", {"quantizer": pt2e.default_quantizer(spec), "name": "first"})
    assert annotated(told) == [False, True]
