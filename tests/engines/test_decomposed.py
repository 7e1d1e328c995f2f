"""Kernels and codes of lowered decomposed models, whose quantized tensors are integers."""

import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn
from torch.fx import Graph, GraphModule

from conformance.engines import decomposed

QUANTIZED = torch.ops.quantized_decomposed
QPARAMS = (0.5, 3, 0, 255, torch.uint8)
X = torch.tensor([0.0, 0.5, 1.0, 2.0])


class Lowered(nn.Module):
    """Quantizes, maybe computes on integers or in float, and dequantizes."""

    def __init__(self, *, in_float: bool) -> None:
        super().__init__()
        self.in_float = in_float

    def forward(self, x: Tensor) -> Tensor:
        codes = QUANTIZED.quantize_per_tensor(x, *QPARAMS)
        if self.in_float:
            values = torch.relu(QUANTIZED.dequantize_per_tensor(codes, *QPARAMS))
            codes = QUANTIZED.quantize_per_tensor(values, *QPARAMS)
        else:
            codes = torch.clamp(codes, 3, 255)
        values = QUANTIZED.dequantize_per_tensor(codes, *QPARAMS)
        assert isinstance(values, Tensor)
        return values


def test_a_kernel_that_takes_integers_is_quantized() -> None:
    execution = decomposed.traced(Lowered(in_float=False), [X])
    assert execution.listed() == ["aten.clamp"]
    assert not [kernel for kernel in execution.kernels if kernel.in_float]


def test_a_kernel_between_dequantize_and_quantize_is_in_float() -> None:
    execution = decomposed.traced(Lowered(in_float=True), [X])
    assert [kernel.name for kernel in execution.kernels if kernel.in_float] == ["aten.relu"]
    assert execution.ahead_of_time


def test_the_codes_behind_an_output_are_found() -> None:
    (output,) = decomposed.traced(Lowered(in_float=False), [X]).outputs
    assert output.quantized is not None
    assert output.quantized.int_repr().tolist() == [3, 4, 5, 7]
    assert (output.quantized.q_scale(), output.quantized.q_zero_point()) == (0.5, 3)
    assert torch.equal(output.quantized.dequantize(), output.values)


def test_the_grid_of_an_output_is_that_of_its_dequantize_call() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    values = graph.call_function(QUANTIZED.dequantize_per_tensor.default, (x, *QPARAMS))
    graph.output((values, x))
    grid, none = decomposed.grids(GraphModule(nn.Module(), graph))
    assert none is None
    assert grid is not None
    codes = grid.codes(torch.tensor([0.0, 1.0]))
    assert codes is not None
    assert codes.int_repr().tolist() == [3, 5]
    assert grid.codes(torch.tensor([0.25])) is None
