"""Names of what the nodes of a graph call, and options of modules and functions, as text."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from conformance.configs.names import pattern_name

OPTIONS = (
    *("in_channels", "out_channels", "in_features", "out_features", "kernel_size", "stride", "padding", "dilation"),
    *("groups", "bias", "output_padding", "padding_mode", "ceil_mode", "count_include_pad", "divisor_override"),
    *("output_size", "num_features", "num_groups", "num_channels", "affine", "track_running_stats", "negative_slope"),
    *("inplace", "dim"),
    *("start_dim", "end_dim", "scale_factor", "mode", "align_corners", "size", "num_embeddings", "embedding_dim", "p"),
    *("upscale_factor", "normalized_shape", "min_val", "max_val", "alpha", "approximate", "include_last_offset"),
)
"""Attributes of modules that are features of a layer."""

CHANNELS = frozenset({"in_channels", "out_channels", "in_features", "out_features", "num_features", "num_channels"})
"""Options that count channels."""


VARIABLE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


class NotSource(Exception):
    """A module or function cannot be written as source."""


def parameters_of(kind: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """The parameters of the constructor of a class of torch, beside its device and dtype. Those of recurrent layers are in
    the signature of their base class, to which they give its first one, `mode`."""
    base = nn.RNNBase if issubclass(kind, nn.RNNBase) else kind
    left_out = {"self", "device", "dtype"} | ({"mode"} if base is nn.RNNBase else set())
    signature = inspect.signature(base.__init__)
    return {
        name: parameter
        for name, parameter in signature.parameters.items()
        if name not in left_out and parameter.kind not in VARIABLE
    }


def arguments_of(module: nn.Module) -> dict[str, Any]:
    """The arguments that a module of torch was made with, without those that have their default. Raises NotSource for
    others."""
    kind = type(module)
    if getattr(nn, kind.__name__, None) is not kind:
        raise NotSource(f"{kind.__name__} is no module of torch.nn")
    arguments = {}
    for name, parameter in parameters_of(kind).items():
        if not hasattr(module, name):
            if parameter.default is inspect.Parameter.empty:
                raise NotSource(f"{kind.__name__} does not keep its argument {name}")
            continue
        value = getattr(module, name)
        if name == "bias":  # a parameter or None, and a flag of recurrent layers
            value = isinstance(value, Tensor) or value is True
        if value != parameter.default:
            arguments[name] = value
    return arguments


def options_of(module: nn.Module, *, channels: bool = True) -> dict[str, str]:
    """The options of a module as text, by name, with or without those that count channels."""
    names = [name for name in OPTIONS if hasattr(module, name) and (channels or name not in CHANNELS)]
    return {name: text_of(getattr(module, name)) for name in names}


def is_constant(value: Any) -> bool:
    """Whether an argument is a number, a text, a dtype, or a sequence of such."""
    if isinstance(value, tuple | list):
        return bool(value) and all(map(is_constant, value))
    return isinstance(value, int | float | str | bool | torch.dtype)


def text_of(value: Any) -> str:
    """An option as text: numbers of a sequence joined by `x`, whether a tensor is there."""
    if isinstance(value, tuple | list):
        return "x".join(map(text_of, value))
    return str(True) if isinstance(value, Tensor) else str(value)


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
