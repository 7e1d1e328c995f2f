"""Rewritings of a traced network that compute the same in float, and that an engine quantizes in another way.

torch-only, because the modules that a repair writes inline this source.
"""

import copy
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import PerChannelMinMaxObserver, QConfigMapping
from torch.fx import GraphModule, Node, symbolic_trace
from torch.fx.node import map_arg


class InFloat(nn.Module):
    """Calls a module, a function, or the method of a name in float: `prepare_fx` does not look into it if it is given to
    `PrepareCustomConfig.set_non_traceable_module_classes`."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self.call, str):
            return getattr(args[0], self.call)(*args[1:], **kwargs)
        return self.call(*args, **kwargs)


class NotApplicable(Exception):
    """A rewriting cannot be applied to a node."""


def leave_in_float(graph: GraphModule, node: Node) -> None:
    """Compute a node in float, between dequantize and quantize."""
    if not node.op.startswith("call_"):
        raise NotApplicable(f"{node.name} computes nothing")
    call = graph.get_submodule(str(node.target)) if node.op == "call_module" else node.target
    _call_module(graph, node, InFloat(call))


def leave_source_in_float(graph: GraphModule, node: Node) -> None:
    """Compute in float what computes the first operand of a node."""
    if not node.all_input_nodes:
        raise NotApplicable(f"{node.name} has no operand")
    leave_in_float(graph, node.all_input_nodes[0])


def copy_module(graph: GraphModule, node: Node) -> None:
    """Give a call of a module that is called several times a module of its own, with the same parameters."""
    if node.op != "call_module":
        raise NotApplicable(f"{node.name} calls no module")
    _call_module(graph, node, copy.deepcopy(graph.get_submodule(str(node.target))))


def make_contiguous(graph: GraphModule, node: Node) -> None:
    """Give a node its operands in contiguous memory format."""
    with graph.graph.inserting_before(node):
        for operand in node.all_input_nodes:
            if operand.op != "get_attr":
                node.replace_input_with(operand, graph.graph.call_method("contiguous", (operand,)))


def reshape(graph: GraphModule, node: Node) -> None:
    """Reshape in place of a view, which some memory formats do not have."""
    if node.op != "call_method" or node.target != "view":
        raise NotApplicable(f"{node.name} is no view")
    node.target = "reshape"


CONVOLUTIONS = {F.conv1d: 1, F.conv2d: 2, F.conv3d: 3}
"""The number of spatial dimensions of functional convolutions."""
ARGUMENTS = {"input": None, "weight": None, "bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
"""The arguments of functional convolutions and their defaults, in order."""


def give_by_position(graph: GraphModule, node: Node) -> None:
    """Give all arguments of a functional convolution by position, one number for each dimension."""
    rank = CONVOLUTIONS.get(node.target) if node.op == "call_function" else None  # type: ignore[arg-type]
    if rank is None:
        raise NotApplicable(f"{node.name} is no functional convolution")
    values = {**ARGUMENTS, **dict(zip(ARGUMENTS, node.args, strict=False)), **node.kwargs}
    for name in ("stride", "padding", "dilation"):
        if isinstance(values[name], str):
            raise NotApplicable(f"{node.name} has {name}={values[name]!r}")
        if isinstance(values[name], int):
            values[name] = (values[name],) * rank
    node.args, node.kwargs = tuple(values[name] for name in ARGUMENTS), {}


def pad_by_numbers(graph: GraphModule, node: Node) -> None:
    """Pad a convolution with padding="same" or "valid" by the numbers that these words stand for."""
    module: Any = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
    padding = getattr(module, "padding", None)
    if not isinstance(padding, str):
        raise NotApplicable(f"{node.name} has no padding that is a word")
    sizes = zip(module.dilation, module.kernel_size, strict=True)
    totals = [step * (size - 1) if padding == "same" else 0 for step, size in sizes]
    if any(total % 2 for total in totals):
        raise NotApplicable(f"{node.name} pads one side more than the other")
    own = copy.deepcopy(module)
    own.padding = tuple(total // 2 for total in totals)
    _call_module(graph, node, own)


def equal_channels(graph: GraphModule, node: Node) -> None:
    """Give a transposed convolution as many output channels as it has input channels, and take its own of the result."""
    module: Any = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
    if not isinstance(module, TRANSPOSED) or module.groups != 1 or module.out_channels >= module.in_channels:
        raise NotApplicable(f"{node.name} is no transposed convolution to fewer channels")
    own, missing = copy.deepcopy(module), module.in_channels - module.out_channels
    weight, bias = module.weight.detach(), module.bias
    own.weight = nn.Parameter(torch.cat([weight, weight.new_zeros(weight.shape[0], missing, *weight.shape[2:])], 1))
    if bias is not None:
        own.bias = nn.Parameter(torch.cat([bias.detach(), bias.new_zeros(missing)]))
    own.out_channels = module.in_channels
    _call_module(graph, node, own)
    with graph.graph.inserting_after(node):
        taken = graph.graph.call_function(torch.narrow, (node, 1, 0, module.out_channels))
    node.replace_all_uses_with(taken, delete_user_cb=lambda user: user is not taken)


def keep_apart(graph: GraphModule, node: Node) -> None:
    """Keep a layer from being fused with what takes its result."""
    if not node.users:
        raise NotApplicable(f"nothing takes the result of {node.name}")
    name = _free(graph, f"{node.name}_apart")
    graph.add_submodule(name, nn.Identity())
    with graph.graph.inserting_after(node):
        kept = graph.graph.call_module(name, (node,))
    node.replace_all_uses_with(kept, delete_user_cb=lambda user: user is not kept)


RANKS = {
    getattr(nn, f"{kind}{rank}d"): rank
    for kind in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm")
    for rank in (1, 2, 3)
}
"""Spatial dimensions of the results of modules."""


def split_prelu(graph: GraphModule, node: Node) -> None:
    """Compute PReLU as ``w x + (1 - w) relu(x)``, by operators that round to a grid of their own."""
    module: Any = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
    if not isinstance(module, nn.PReLU):
        raise NotApplicable(f"{node.name} is no PReLU")
    weight, source = module.weight.detach(), node.all_input_nodes[0]
    if weight.numel() > 1:
        weight = weight.reshape(-1, *[1] * _rank(graph, source))
    names = [_free(graph, f"{node.name}_{part}") for part in ("slope", "rest")]
    for name, value in zip(names, (weight, 1 - weight), strict=True):
        graph.register_buffer(name, value.clone())
    with graph.graph.inserting_before(node):
        slope, rest = map(graph.graph.get_attr, names)
        below = graph.graph.call_function(operator.mul, (source, slope))
        above = graph.graph.call_function(operator.mul, (graph.graph.call_function(F.relu, (source,)), rest))
        total = graph.graph.call_function(operator.add, (below, above))
    node.replace_all_uses_with(total)
    graph.graph.erase_node(node)


def _rank(graph: GraphModule, node: Node) -> int:
    """The spatial dimensions of a value, from the nearest layer before it that has them in its class."""
    near, seen = [node], set[Node]()
    while near:
        one = near.pop(0)
        kind = type(graph.get_submodule(str(one.target))) if one.op == "call_module" else None
        if kind in RANKS:
            return RANKS[kind]
        near += [before for before in one.all_input_nodes if before not in seen]
        seen.update(near)
    raise NotApplicable(f"the dimensions of {node.name} are unknown")


TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def read_when_traced(graph: GraphModule, node: Node) -> None:
    """Read a property of a parameter, such as its dtype, when the network is traced: lowering replaces the parameter."""
    source = node.args[0] if node.target is getattr else None
    if not isinstance(source, Node) or source.op != "get_attr":
        raise NotApplicable(f"{node.name} reads no property of a parameter")
    owner, _, name = str(source.target).rpartition(".")
    value = getattr(getattr(graph.get_submodule(owner), name), str(node.args[1]))
    for user in [*node.users]:
        user.args = map_arg(user.args, lambda one: value if one is node else one)
        user.kwargs = map_arg(user.kwargs, lambda one: value if one is node else one)
    graph.graph.erase_node(node)


WEIGHTED = (*CONVOLUTIONS, F.linear)
"""Functional layers with a weight that lowering packs."""


def compute_weight(graph: GraphModule, node: Node) -> None:
    """Compute the weight and bias of a functional layer when the network is traced, for it alone: of a node, or of each that
    reads what a node computes from parameters."""
    found = {(layer, one): None for layer in _layers(node) for one in layer.all_input_nodes if _is_constant(one)}
    if not found:
        raise NotApplicable(f"{node.name} is no functional layer with a weight of parameters")
    for layer, operand in found:
        name = _free(graph, f"{layer.name}_{operand.name}")
        with torch.no_grad():
            graph.register_buffer(name, _computed(graph, operand).clone())
        with graph.graph.inserting_before(layer):
            layer.replace_input_with(operand, graph.graph.get_attr(name))


def _layers(node: Node) -> list[Node]:
    """The functional layers with a weight among a node, or among those that read what it computes from parameters."""
    if node.target in WEIGHTED:
        return [node]
    return [layer for user in node.users for layer in _layers(user)] if _is_constant(node) else []


def _is_constant(node: Node) -> bool:
    """Whether a node depends on parameters alone."""
    return node.op == "get_attr" or (bool(node.all_input_nodes) and all(map(_is_constant, node.all_input_nodes)))


def _computed(graph: GraphModule, node: Node) -> Any:
    """The value of a node that depends on parameters alone."""
    if node.op == "get_attr":
        owner, _, name = str(node.target).rpartition(".")
        return getattr(graph.get_submodule(owner), name)
    args, kwargs = map_arg((node.args, node.kwargs), lambda one: _computed(graph, one))
    if node.op == "call_module":
        return graph.get_submodule(str(node.target))(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


ARITHMETIC = (operator.add, operator.mul, operator.iadd, operator.imul, torch.add, torch.mul)


def compute_with_tensor(graph: GraphModule, node: Node) -> None:
    """Where a value is added to a number or multiplied by one, use a tensor of one element: the result has a range of its
    own."""
    found = False
    for user in [*node.users]:
        numbers = [place for place, one in enumerate(user.args[:2]) if isinstance(one, int | float)]
        if user.op != "call_function" or user.target not in ARITHMETIC or len(numbers) != 1 or user.kwargs:
            continue
        name = _free(graph, f"{user.name}_number")
        graph.register_buffer(name, torch.tensor([float(user.args[numbers[0]])]))  # type: ignore[arg-type]
        with graph.graph.inserting_before(user):
            user.update_arg(numbers[0], graph.graph.get_attr(name))
        found = True
    if not found:
        raise NotApplicable(f"no number is added to {node.name} or multiplied by it")


def narrow_weight(graph: GraphModule, node: Node) -> None:
    """Have the weight of a convolution quantized to 7 bits, by the mapping that `narrowed` makes."""
    module: Any = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
    if not isinstance(module, nn.Conv2d) or getattr(module, "narrow", False):
        raise NotApplicable(f"{node.name} is no Conv2d with a weight of 8 bits")
    own: Any = copy.deepcopy(module)
    own.narrow = True
    _call_module(graph, node, own)


def narrowed(mapping: QConfigMapping, graph: nn.Module) -> QConfigMapping:
    """A mapping with weights of 7 bits for the modules of which `narrow_weight` asks it."""
    weight = PerChannelMinMaxObserver.with_args(
        quant_min=-64, quant_max=63, dtype=torch.qint8, qscheme=torch.per_channel_symmetric
    )
    usual: Any = mapping.global_qconfig
    for name, module in graph.named_modules():
        if getattr(module, "narrow", False):
            mapping.set_module_name(name, usual._replace(weight=weight))
    return mapping


Rewriting = Callable[[GraphModule, Node], None]

REWRITES: dict[str, Rewriting] = {
    "copies": copy_module,
    "contiguous": make_contiguous,
    "reshape": reshape,
    "positional": give_by_position,
    "padding": pad_by_numbers,
    "tensor": compute_with_tensor,
    "equal": equal_channels,
    "apart": keep_apart,
    "narrow": narrow_weight,
    "split": split_prelu,
    "constant": read_when_traced,
    "computed": compute_weight,
    "source": leave_source_in_float,
    "float": leave_in_float,
}
"""The rewritings by the names that remedies have."""


def traced(model: nn.Module) -> GraphModule:
    """A copy of a float model as FX traces it."""
    graph = symbolic_trace(copy.deepcopy(model))
    graph.train(model.training)
    for node in reversed([*graph.graph.nodes]):
        if node.target is getattr and not node.users:  # as in messages of assertions: the graph's code has none
            graph.graph.erase_node(node)
    return graph


def rewritten(model: nn.Module, steps: Iterable[tuple[Rewriting, str]]) -> GraphModule:
    """A copy of a float model as FX traces it, with a rewriting for each node: pairs of one of REWRITES and the name of the
    node. Raises NotApplicable."""
    graph = traced(model)
    nodes = {node.name: node for node in graph.graph.nodes}
    for rewrite, name in steps:
        if name not in nodes:
            raise NotApplicable(f"the network has no node {name}")
        rewrite(graph, nodes[name])
    graph.graph.lint()
    graph.recompile()
    return graph


def _call_module(graph: GraphModule, node: Node, module: nn.Module) -> None:
    name = _free(graph, node.name)
    graph.add_submodule(name, module.train(graph.training))
    node.op, node.target = "call_module", name


def _free(graph: GraphModule, name: str) -> str:
    name = f"{name}_own"
    while hasattr(graph, name):
        name += "_"
    return name
