"""From torch's decomposed reference model to one whose weights are integers.

A decomposed reference model holds its weights in float and quantizes them at every call: reference modules inside of their
`forward`, functions in the graph. A backend that is given the exported graph looks for integer constants that a dequantize
follows, finds none, and leaves the layer in float; nor does ExecuTorch have kernels for every such quantize. Here modules are
first written out into the graph, so that weights of both kinds stand there alike, and then every quantize of a parameter is
computed, once. The integers, scales and zero points are those that the reference model computes with.
"""

from typing import Any

import torch
from torch import nn
from torch.ao.nn.quantized.reference.modules.utils import ReferenceQuantizedModule
from torch.fx import GraphModule, Node, Tracer

QUANTIZE = "quantized_decomposed.quantize_per_"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor"


class Inliner(Tracer):
    """Traces through reference modules and what holds them; every other module stays a call."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not any(isinstance(part, ReferenceQuantizedModule) for part in m.modules())


def with_integer_weights(model: GraphModule) -> GraphModule:
    """Return a decomposed reference model with integers in the place of the weights that it quantizes.

    What it quantizes of its inputs stays as it is, and so do weights that it does not quantize to integers.
    """
    flat = GraphModule(model, Inliner().trace(model))
    for node in [*flat.graph.nodes]:
        if QUANTIZE in str(node.target) and _is_constant(node.args[0]):
            _fold(flat, node)
    flat.graph.eliminate_dead_code()
    flat.delete_all_unused_submodules()
    flat.recompile()
    return flat


def _is_constant(argument: object) -> bool:
    return isinstance(argument, Node) and argument.op == "get_attr"


def _value(model: GraphModule, argument: Any) -> Any:
    """What a call's argument is: the parameter or buffer that it names, or the argument itself."""
    if not _is_constant(argument):
        return argument
    owner, _, name = argument.target.rpartition(".")
    return getattr(model.get_submodule(owner), name)


def _fold(model: GraphModule, quantize: Node) -> None:
    """Put the integers that a quantize call makes of a parameter into its place."""
    function: Any = quantize.target
    with torch.no_grad():
        codes = function(*(_value(model, argument) for argument in quantize.args))
    name = f"{quantize.name}_codes"
    model.register_buffer(name, codes)
    with model.graph.inserting_before(quantize):
        constant = model.graph.get_attr(name)
    for user in [*quantize.users]:
        if DEQUANTIZE in str(user.target):
            _with_numbers(model, user)
    quantize.replace_all_uses_with(constant)
    model.graph.erase_node(quantize)


def _with_numbers(model: GraphModule, dequantize: Node) -> None:
    """Give scale and zero point of one whole tensor as numbers: as tensors they are what dynamic quantization has."""
    _, scale, zero_point, *rest = (_value(model, argument) for argument in dequantize.args)
    dequantize.target = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    dequantize.args = (dequantize.args[0], float(scale), int(zero_point), *rest)
