"""What distinguishes a layer of an audited network from others, by which the ledger knows it."""

from collections.abc import Container, Mapping

from torch import Tensor, nn
from torch.fx import Node

from conformance.cases.recipes import dtype_name
from conformance.configs.names import pattern_name

from .agreement import qparams
from .execution import Step
from .options import call_name, is_constant, options_of, text_of


def features(
    step: Step, node: Node, modules: Mapping[str, nn.Module], lowered: Mapping[str, nn.Module]
) -> dict[str, str]:
    """What distinguishes a layer from others of its pattern: the operator with its options, its inputs, its neighbours.

    `node` is that of the network before lowering, whose modules are `modules`; the neighbours are those after it.
    """
    found = features_of_call(node, modules)
    tensors = [x for x in step.inputs if isinstance(x, Tensor)]
    found |= {
        "inputs": " ".join("x".join(map(str, x.shape)) for x in tensors),
        "formats": " ".join(name for name in step.formats if name),
        "aliased": str(step.aliased),
        "dtypes": " ".join(dtype_name(x.dtype) for x in tensors),
        "producers": " ".join(call_name(one, lowered) for one in step.node.all_input_nodes),
        "consumers": " ".join(call_name(one, lowered) for one in step.node.users),
    }
    scales = [own.scale for x in tensors if (own := qparams(x))]
    if scales and (output := qparams(step.value)):
        found["greatest_scale_ratio"] = f"{max(scales) / output.scale:.6g}"
        found["least_scale_ratio"] = f"{min(scales) / output.scale:.6g}"
    quantized = [x for x in tensors if x.is_quantized]
    if isinstance(step.value, Tensor):
        found["broadcast"] = str(any(broadcasts(x, step.value) for x in quantized))
    if isinstance(step.value, Tensor) and isinstance(step.local, Tensor):
        if step.value.is_quantized != step.local.is_quantized:
            found["kind"] = "codes for float" if step.value.is_quantized else "float for codes"
        elif qparams(step.value) != qparams(step.local):
            found["grid"] = "other"
    if output := qparams(step.value):
        found["scale"] = f"{output.scale:.6g}"
    codes = [int(x.int_repr().max()) for x in quantized if x.numel()]
    if codes:
        found["greatest_code"] = str(max(codes))
        found["elements"] = str(max(x[0, 0].numel() if x.dim() > 2 else 1 for x in quantized if x.numel()))
    return found


def features_of_call(node: Node, modules: Mapping[str, nn.Module]) -> dict[str, str]:
    """The operator that a node calls, with its options."""
    found = {"operator": call_name(node, modules)}
    module = modules.get(str(node.target)) if node.op == "call_module" else None
    if isinstance(module, nn.Sequential) and len(module):  # a fused module
        module = module[0]
        found["operator"] = pattern_name(type(module))
    if module is not None:
        found |= options_of(module)
    else:
        found |= {f"arg{number}": text_of(value) for number, value in enumerate(node.args) if is_constant(value)}
        found |= {name: text_of(value) for name, value in node.kwargs.items() if is_constant(value)}
    if isinstance(module, nn.PReLU):
        found["greatest_slope"] = f"{float(module.weight.max()):.6g}"
    if "in_channels" in found:
        found["equal_channels"] = str(found["in_channels"] == found["out_channels"])
    return found


ARGUMENTS_OF_CONVOLUTIONS = 7
"""Arguments of a functional convolution, groups included, all of which lowering passes on by position."""


def features_of_arguments(node: Node, modules: Mapping[str, nn.Module]) -> dict[str, str]:
    """How a node gets arguments: tensors by keyword, those of a functional convolution, the dtype of a module's weight."""
    found = {}
    if tensors := [name for name, one in node.kwargs.items() if isinstance(one, Node)]:
        found["keywords"] = " ".join(tensors)
    if call_name(node, modules).startswith("F.conv"):
        if len(node.args) < ARGUMENTS_OF_CONVOLUTIONS:
            found["arguments"] = "missing"
        elif any(isinstance(one, int) for one in node.args[3:6]):
            found["arguments"] = "numbers"
    weight = getattr(modules.get(str(node.target)), "weight", None) if node.op == "call_module" else None
    if isinstance(weight, Tensor):
        found["weight_dtype"] = dtype_name(weight.dtype)
    return found


def folded(
    node: Node, modules: Mapping[str, nn.Module], constant: Container[Node], observers: Container[Node] = ()
) -> str:
    """The operators that compute operands of a node from parameters alone, which lowering folds into its weight. `constant`
    are the nodes that depend on nothing else, `observers` those that are no operators."""
    found = [one for one in sources(node, constant) if one.op.startswith("call_") and one not in observers]
    return " ".join(call_name(one, modules) for one in reversed(found))


def sources(node: Node, constant: Container[Node]) -> list[Node]:
    """The nodes that compute operands of a node from parameters alone, those next to it first."""
    found: dict[Node, None] = {}
    near = [one for one in node.all_input_nodes if one in constant]
    while near:
        one = near.pop()
        found[one] = None
        near += one.all_input_nodes
    return [*found]


def other_readers(node: Node, constant: Container[Node]) -> set[Node]:
    """The nodes that read what a node is computed from with parameters alone, beside it."""
    own = {node, *sources(node, constant)}
    return {user for one in own - {node} for user in one.users} - own


def broadcasts(x: Tensor, result: Tensor) -> bool:
    """Whether an input has one item, row or column where the result has more."""
    return x.dim() == result.dim() and any(
        own == 1 < other for dim, (own, other) in enumerate(zip(x.shape, result.shape, strict=True)) if dim != 1
    )
