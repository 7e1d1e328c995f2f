"""Names of what the nodes of a graph call."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from conformance.configs.names import pattern_name


def call_kind(node: Node, modules: Mapping[str, nn.Module]) -> Any:
    """What a node calls: a class of modules, a function, or the name of a method; None for other nodes."""
    if node.op == "call_module":
        return type(modules[str(node.target)])
    return node.target if node.op in ("call_function", "call_method") else None


def call_name(node: Node, modules: Mapping[str, nn.Module]) -> str:
    """The name of what a node calls, as users write it."""
    kind = call_kind(node, modules)
    if kind is None:
        return node.op
    if kind is getattr:
        return f"getattr({node.args[1]})"
    if isinstance(kind, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(kind)
    return pattern_name(kind)


def named(node: Node, scope: str) -> str:
    """The name of a node that calls a function: the path of the module that calls it, `scope` or else that of its tracing,
    and the node's own."""
    scope = scope or next(reversed(node.meta.get("nn_module_stack", {})), "")
    return f"{scope}.{node.name}" if scope else node.name
