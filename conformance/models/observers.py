"""Observers and quantizers of a model: data shown to observers, tensors that quantizers and packed weights hold.

torch-only, because reproduction scripts inline this source.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization import FakeQuantizeBase, ObserverBase
from torch.fx import GraphModule, Node


def observes(graph: GraphModule, node: Node) -> bool:
    """Whether a node calls an observer or a fake-quantize."""
    return node.op == "call_module" and is_observer(graph.get_submodule(str(node.target)))


def rewrite(model: nn.Module, expression: str) -> None:
    """Replace each weight `w` by the value of an expression; parameters of one dimension are biases and norms and stay."""
    if expression:
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.copy_(eval(expression, {"w": parameter.detach().clone(), "torch": torch}))


def show(prepared: GraphModule, data: Tensor) -> None:
    """Show data to the observers of activations, and parameters to the observers of parameters."""
    with torch.no_grad():
        for node in prepared.graph.nodes:
            if observes(prepared, node):
                (source,) = node.all_input_nodes
                shown = attribute(prepared, str(source.target)) if source.op == "get_attr" else data
                prepared.get_submodule(str(node.target))(shown)


def attribute(graph: GraphModule, path: str) -> Any:
    """The attribute of a graph module at a dotted path."""
    owner, _, name = path.rpartition(".")
    return getattr(graph.get_submodule(owner), name)


def value_of(graph: GraphModule, argument: object) -> Any:
    """The value of a node's argument: a get_attr node's attribute, or the argument itself."""
    return attribute(graph, str(argument.target)) if isinstance(argument, Node) else argument


def quantized_by(graph: GraphModule, data: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The quantized tensor of each quantizer in a reference model, with its side: of its parameter, or else of `data`."""
    quantizers = [node for node in graph.graph.nodes if "quantize_per" in str(node.target)]
    (result,) = (node for node in graph.graph.nodes if node.op == "output")
    outputs = {node for dequantize in result.all_input_nodes for node in dequantize.all_input_nodes} & {*quantizers}
    inputs = {node for output in outputs for node in quantizers_before(output)} if outputs else {*quantizers}
    for node in quantizers:
        source, *arguments = node.args
        weight = source.op == "get_attr"
        side = "weight" if weight else "output" if node in outputs else "input" if node in inputs else ""
        if side:
            taken = value_of(graph, source) if weight else data
            yield side, node.target(taken, *(value_of(graph, argument) for argument in arguments))
    modules: list[Any] = [module for module in graph.modules() if hasattr(module, "get_quantized_weight")]
    for module in modules:
        yield "weight", module.get_quantized_weight()


def quantizers_before(node: Node) -> set[Node]:
    """The nearest quantizers before a node."""
    found: set[Node] = set()
    for source in node.all_input_nodes:
        found |= {source} if "quantize_per" in str(source.target) else quantizers_before(source)
    return found


def unpacked(lowered: GraphModule) -> Iterator[Tensor]:
    """The weights that the engine packed, unpacked: weights of modules, and constant weights of functions."""
    modules: list[Any] = [*lowered.modules()]
    constants: list[Any] = [value for value in vars(lowered).values() if isinstance(value, torch.ScriptObject)]
    for module in modules:
        if callable(getattr(module, "_weight_bias", None)):
            yield module._weight_bias()[0]
    for constant in constants:
        if constant._has_method("unpack"):
            yield constant.unpack()[0]


def is_observer(module: object) -> bool:
    """Whether a module is an observer or a fake-quantize, of torch.ao or of torchao."""
    if isinstance(module, ObserverBase | FakeQuantizeBase):
        return True
    theirs = any(base.__module__.startswith("torchao.") for base in type(module).__mro__)
    return theirs and hasattr(module, "calculate_qparams")
