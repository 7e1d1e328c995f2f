"""Scales and zero points of lowered models, which may be set to others than those of the calibration.

torch-only, because reproduction scripts inline this source.
"""

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node


def operands_of(lowered: GraphModule) -> dict[str, Node]:
    """The call that quantizes each input of a lowered model, by the name of the input."""
    calls = [node for node in lowered.graph.nodes if node.target is torch.quantize_per_tensor]
    return {str(node.args[0].target): node for node in calls if node.args[0].op == "placeholder"}


def takes_qparams(lowered: GraphModule, node: Node) -> bool:
    """Whether a node takes the scale and zero point of the tensor that it quantizes.

    If not, that tensor has those of the node's input, or ones that a kernel fixes.
    """
    if node.op == "call_module":
        return hasattr(lowered.get_submodule(str(node.target)), "zero_point")
    return bool(qparams_buffers(lowered, node))


def qparams_buffers(lowered: GraphModule, node: Node) -> list[Tensor]:
    """The buffers of the scale and the zero point that a call takes; none if it takes none."""
    names = [str(source.target) for source in node.all_input_nodes if source.op == "get_attr"]
    found = [[name for name in names if part in name][:1] for part in ("_scale_", "_zero_point_")]
    return [getattr(lowered, name) for (name,) in found] if all(found) else []


def get_qparams(lowered: GraphModule, node: Node) -> tuple[float, int]:
    """The scale and zero point that a node takes."""
    if node.op == "call_module":
        module: Any = lowered.get_submodule(str(node.target))
        return float(module.scale), int(module.zero_point)
    scale, zero_point = qparams_buffers(lowered, node)
    return float(scale), int(zero_point)


def set_qparams(lowered: GraphModule, node: Node, scale: float, zero_point: int) -> bool:
    """Set the scale and zero point of the tensor that a node quantizes. False if the node takes none."""
    if not takes_qparams(lowered, node):
        return False
    if node.op == "call_module":
        module: Any = lowered.get_submodule(str(node.target))
        for name, value in (("scale", scale), ("zero_point", zero_point)):
            if isinstance(getattr(module, name), Tensor):
                getattr(module, name).fill_(value)
            else:
                setattr(module, name, value)
        return True
    for buffer, value in zip(qparams_buffers(lowered, node), (scale, zero_point), strict=True):
        buffer.fill_(value)
    return True
