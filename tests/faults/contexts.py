"""Faults that a model of one operator cannot show, because they depend on the operators beside it."""

import ctypes
from typing import Any

import torch
from torch.fx import GraphModule

from .fault import case
from .kernels import Call, Kernel, kernel_faults
from .lowering import lowered


def overwriting_input(call: Call) -> Any:
    """The input is freed as soon as the result is there, although another operator reads it too."""
    result = call.original()
    ctypes.memset(call.x.data_ptr(), 0, call.x.numel())
    return result


def in_the_format_of_the_first(call: Call) -> Any:
    """The second operand is read in the memory format of the first."""
    first, second = call["qa"], call["qb"]
    if first.is_contiguous() == second.is_contiguous() or first.shape != second.shape:
        return call.original()
    codes = second.int_repr().as_strided(first.shape, first.stride())
    misread = torch._make_per_tensor_quantized_tensor(codes, second.q_scale(), second.q_zero_point())
    return call.original(qb=misread)


def one_module_for_both(graph: GraphModule) -> None:
    """A module that shares a parameter with another one is taken for the same."""
    calls = [node for node in graph.graph.nodes if node.op == "call_module"]
    for node in calls[1:]:
        node.target = calls[0].target


def of(pattern: str, context: str) -> str:
    return case(pattern, context, profile="contexts")


fault = kernel_faults("contexts")
KERNELS: list[tuple[str, str, Kernel, str]] = [
    (
        "an input that is used again is overwritten, 1d",
        "quantized.conv1d_relu quantized.conv1d",
        overwriting_input,
        of("nn.Conv1d+F.relu", "used_again"),
    ),
    (
        "an input that is used again is overwritten, linear",
        "quantized.linear_relu quantized.linear",
        overwriting_input,
        of("F.linear+F.relu", "used_again"),
    ),
    (
        "the second operand is read in the memory format of the first",
        "quantized.add",
        in_the_format_of_the_first,
        of("nn.Conv2d+nn.ReLU", "residual_right"),
    ),
]
FAULTS = [
    *(fault(name, "numerics", operators, kernel, run) for name, operators, kernel, run in KERNELS),
    lowered(
        "modules that share a bias become one", "numerics", one_module_for_both, of("nn.Conv1d+nn.ReLU", "shared_bias")
    ),
    lowered(
        "modules that share a weight become one",
        "numerics",
        one_module_for_both,
        of("nn.Linear+nn.ReLU", "shared_weight"),
    ),
]
