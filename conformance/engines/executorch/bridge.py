"""Conversion of torch's decomposed reference model to a model with integer weights.

A decomposed reference model has float weights and quantizes them at every call: reference modules do so in `forward`,
functions in the graph. A backend expects an integer constant followed by a dequantize in the exported graph. Where it finds
none, it leaves the layer in float, and ExecuTorch lacks kernels for some of these quantize calls. So modules are inlined
into the graph first, and every quantize of a parameter is then folded to a constant. Codes, scales and zero points are those
of the reference model.
"""

from typing import Any

import torch
from torch import nn
from torch.ao.nn.quantized.reference.modules.utils import ReferenceQuantizedModule
from torch.fx import GraphModule, Node, Tracer

QUANTIZE = "quantized_decomposed.quantize_per_"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor"


class Inliner(Tracer):
    """Traces through reference modules and their containers. Every other module stays a call."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not any(isinstance(part, ReferenceQuantizedModule) for part in m.modules())


def with_integer_weights(model: GraphModule) -> GraphModule:
    """Return a decomposed reference model whose quantized weights are integer buffers.

    Quantize calls of activations stay, and so do weights that the model does not quantize to integers.
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
    """The parameter or buffer that an argument names, or else the argument itself."""
    if not _is_constant(argument):
        return argument
    owner, _, name = argument.target.rpartition(".")
    return getattr(model.get_submodule(owner), name)


def _fold(model: GraphModule, quantize: Node) -> None:
    """Replace a quantize call of a parameter by a buffer with the codes."""
    function: Any = quantize.target
    with torch.no_grad():
        codes = function(*(_value(model, argument) for argument in quantize.args))
    name = f"{quantize.name}_codes"
    model.register_buffer(name, codes)
    with model.graph.inserting_before(quantize):
        constant = model.graph.get_attr(name)
    for user in [*quantize.users]:
        if DEQUANTIZE in str(user.target):
            _set_scalar_qparams(model, user)
    quantize.replace_all_uses_with(constant)
    model.graph.erase_node(quantize)


def _set_scalar_qparams(model: GraphModule, dequantize: Node) -> None:
    """Pass per-tensor qparams as numbers. XNNPACK takes tensors for the qparams of dynamic quantization."""
    _, scale, zero_point, *rest = (_value(model, argument) for argument in dequantize.args)
    dequantize.target = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    dequantize.args = (dequantize.args[0], float(scale), int(zero_point), *rest)
