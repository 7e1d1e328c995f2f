"""The kernels that lowering puts in the place of operators, and the memory formats of what they return."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch.fx import Node

CODED = (torch.quint8, torch.qint8)

_KERNELS = {
    "add": "operator.add operator.iadd torch.add",
    "dropout": "F.dropout",
    "elu": "nn.ELU F.elu",
    "group_norm": "nn.GroupNorm F.group_norm",
    "hardswish": "nn.Hardswish F.hardswish",
    "instance_norm": "nn.InstanceNorm1d nn.InstanceNorm2d nn.InstanceNorm3d F.instance_norm",
    "layer_norm": "nn.LayerNorm F.layer_norm",
    "leaky_relu": "nn.LeakyReLU F.leaky_relu",
    "linear": "nn.Linear F.linear",
    "matmul": "operator.matmul torch.matmul",
    "mul": "operator.mul operator.imul torch.mul",
    "prelu": "nn.PReLU",
    "softmax": "nn.Softmax",
    **{f"conv{rank}d": f"nn.Conv{rank}d F.conv{rank}d" for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": f"nn.ConvTranspose{rank}d F.conv_transpose{rank}d" for rank in (1, 2, 3)},
    **{f"batch_norm{rank}d": f"nn.BatchNorm{rank}d" for rank in (1, 2, 3)},
}
OWN = {operator: f"quantized.{kernel}" for kernel, operators in _KERNELS.items() for operator in operators.split()}
"""The quantized kernels of operators that have one of their own; others compute with the kernel that they have in float."""

UNCLAIMED = frozenset(
    operator
    for kernel in [
        "elu",
        "hardswish",
        "instance_norm",
        "layer_norm",
        "leaky_relu",
        "prelu",
        "batch_norm2d",
        "batch_norm3d",
    ]
    for operator in _KERNELS[kernel].split()
)
"""What lowering replaces between quantized values although no pattern of the config covers it."""

UNASKED = UNCLAIMED | frozenset(
    [
        "nn.Softmax",
        "F.softmax",
        "torch.softmax",
        "nn.Sigmoid",
        "F.sigmoid",
        "torch.sigmoid",
        "nn.Hardsigmoid",
        "F.hardsigmoid",
        "nn.Tanh",
        "F.tanh",
        "torch.tanh",
        "Tensor.sigmoid",
        "Tensor.tanh",
    ]
)
"""What it replaces there although the mapping has no qconfig for it."""

CHANNELS_LAST = tuple(f"quantized.{name}" for name in ("conv2d", "conv3d", "conv_transpose", "batch_norm"))
"""What the names of kernels begin with whose results are in channels-last memory format."""

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""The channels-last memory format of tensors by their number of dimensions."""

AS_FIRST = ("quantized.add", "quantized.mul", "quantized.instance_norm")
"""What the names of kernels begin with whose results have the memory format that their first operand suggests."""


def suggested(value: Any) -> Any:
    """A tensor in the memory format that quantize and dequantize give their results; other values as they are."""
    if not isinstance(value, Tensor):
        return value
    return value.contiguous(memory_format=suggest_memory_format(value))


def in_format(value: Tensor, kernel: str, given: Sequence[tuple[Node, Any]]) -> Tensor:
    """The result of a quantized kernel in the memory format that the kernel gives it."""
    first = next((x for _, x in given if isinstance(x, Tensor)), value)
    if kernel.startswith(CHANNELS_LAST) and value.dim() in LAST:
        return value.contiguous(memory_format=LAST[value.dim()])
    if kernel.startswith(AS_FIRST) and first.dim() <= value.dim():
        return value.contiguous(memory_format=suggest_memory_format(first))
    return value
