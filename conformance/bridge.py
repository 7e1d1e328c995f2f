"""From torch's decomposed reference model to one whose weights are integers.

`convert_to_reference_fx` leaves weights in float and quantizes them in the graph, at every call. A backend that is given
the exported graph finds no constant where it looks for packed integers, and refuses. Here every weight becomes a buffer of
integers that is followed by a dequantize: what the weight was quantized to, with the same scales and zero points.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.nn.quantized.reference.modules.utils import ReferenceQuantizedModule
from torch.fx import GraphModule, Node

INTEGERS = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}
"""The dtype of the integers behind each quantized dtype that a decomposed model has."""


def with_integer_weights(model: GraphModule) -> GraphModule:
    """Turn what a decomposed reference model quantizes of its own parameters into integer constants, in place.

    That are the weights of reference modules, of whatever layer, and the parameters that are given to functions. Other
    quantize calls stay as they are.
    """
    for module in model.modules():
        if isinstance(module, ReferenceQuantizedModule) and module.weight_dtype in INTEGERS:
            _fold_module(module)
    for node in [*model.graph.nodes]:
        if "quantized_decomposed.quantize_per_" in str(node.target) and _is_constant(model, node.args[0]):
            _fold_call(model, node)
    model.graph.eliminate_dead_code()
    model.recompile()
    return model


def _fold_module(module: Any) -> None:
    """Put a reference module's integers in the place of its weight. Its `forward` asks `get_weight`, which from now on
    dequantizes them."""
    with torch.no_grad():
        codes: Tensor = module.get_quantized_weight()
    low, high = module.weight_quant_min, module.weight_quant_max
    if low is None or high is None:
        low, high = torch.iinfo(codes.dtype).min, torch.iinfo(codes.dtype).max
    del module.weight
    module.register_buffer("weight", codes)
    module.get_weight = _dequantize(module, codes.dtype, low, high)


def _dequantize(module: Any, dtype: torch.dtype, low: int, high: int) -> Callable[[], Tensor]:
    if module.weight_qscheme == torch.per_tensor_affine:
        # numbers, not tensors: qparams that are computed at run time are how backends know dynamic quantization
        scale, zero_point = float(module.weight_scale), int(module.weight_zero_point)
        return lambda: torch.ops.quantized_decomposed.dequantize_per_tensor.default(  # type: ignore[no-any-return]
            module.weight, scale, zero_point, low, high, dtype
        )
    axis = module.weight_axis_int
    return lambda: torch.ops.quantized_decomposed.dequantize_per_channel.default(  # type: ignore[no-any-return]
        module.weight, module.weight_scale, module.weight_zero_point, axis, low, high, dtype
    )


def _is_constant(model: GraphModule, value: object) -> bool:
    return isinstance(value, Node) and value.op == "get_attr"


def _value(model: GraphModule, argument: Any) -> Any:
    """What an argument of a call is: a parameter, a buffer, or the argument itself."""
    if not _is_constant(model, argument):
        return argument
    owner, _, name = argument.target.rpartition(".")
    return getattr(model.get_submodule(owner), name)


def _fold_call(model: GraphModule, quantize: Node) -> None:
    """Compute a quantize call of a parameter now and keep its result as a buffer."""
    with torch.no_grad():
        codes = quantize.target(*(_value(model, argument) for argument in quantize.args))  # type: ignore[operator]
    name = f"{quantize.name}_codes"
    model.register_buffer(name, codes)
    with model.graph.inserting_before(quantize):
        constant = model.graph.get_attr(name)
    quantize.replace_all_uses_with(constant)
    model.graph.erase_node(quantize)
