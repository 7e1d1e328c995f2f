"""What the engine x86 keeps of the promises of fbgemm: a config, a mapping, and a function that quantizes.

    from x86 import quantize
    quantized = quantize(model, batches)  # a float model in eval mode, and tuples of arguments to calibrate it with

Made of rows of torch 2.13.0+cpu on x86_64 avx512_vnni, 2026-11-30. This file needs torch alone.
159 of 225 claims hold in default use; rules keep layers from what is wrong in other forms.
A traced network does not tell whether it has these, so they may remain:
- inplace-alias: An in-place operator in a quantized model does not change the tensor that other users read
- linear-batchnorm-rank3: A batch norm behind a linear layer is folded along the wrong dimension for inputs of rank 3
- shared-observer-chain: torch.cat rounds twice behind operators that keep qparams, such as pooling
- norm-without-statistics: prepare_fx raises for a layer before a batch norm without running statistics
- norm-without-affine: prepare_fx raises for a linear layer before a batch norm without weight and bias, and
  prepare_qat_fx for any layer
- add-overflows: quantized::add overflows float32 where an operand's scale times its zero point is infinite
- parameter-read-after-fusion: A network that reads a parameter of a module raises once that module is fused
- forward-hooks-dropped: convert_fx drops the forward hooks of the modules that it replaces
- linear-norm-relu-dropped: convert_fx drops the ReLU behind a linear layer and its batch norm
"""

import copy
import fnmatch
import operator
import re
import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
import torch.nn.functional as F
import torch.ao.quantization.quantize_fx
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from functools import cache
from torch import Tensor, nn
from torch.ao.quantization import PerChannelMinMaxObserver, QConfigMapping, get_default_qconfig_mapping
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig, get_fbgemm_backend_config
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
from torch.ao.quantization.utils import MatchAllNode
from torch.fx import GraphModule, Interpreter, Node, symbolic_trace
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.fx.node import map_arg
from typing import Any


def dtype_name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


RELATIONS = {">=": operator.ge, "<=": operator.le, "==": operator.eq, "<": operator.lt, ">": operator.gt}


NUMBER_RELATION = re.compile(r"(>=|<=|==|<|>)\s*(-?[\d.]+(?:e-?\d+)?)")


def fulfils(value: str, condition: str) -> bool:
    """Whether a feature fulfils a condition: a relation to a number, or else a glob."""
    if (relation := NUMBER_RELATION.fullmatch(condition)) is None:
        return fnmatch.fnmatchcase(value, condition)
    try:
        return bool(RELATIONS[relation[1]](float(value), float(relation[2])))
    except ValueError:
        return False


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


ARGUMENTS = {"input": None, "weight": None, "bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}


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


RANKS = {
    getattr(nn, f"{kind}{rank}d"): rank
    for kind in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm")
    for rank in (1, 2, 3)
}


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


def traced(model: nn.Module) -> GraphModule:
    """A copy of a float model as FX traces it."""
    graph = symbolic_trace(copy.deepcopy(model))
    graph.train(model.training)
    for node in reversed([*graph.graph.nodes]):
        if node.target is getattr and not node.users:  # as in messages of assertions: the graph's code has none
            graph.graph.erase_node(node)
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


_FUNCTIONS = {"F": F, "torch": torch, "operator": operator}


_MODULES = {"nn": nn, "nni": nni, "nnqat": nnqat, "nniqat": nniqat}


@cache
def _names() -> dict[Any, str]:
    """Return the names of all callables of the namespaces; `__name__` is not unique among functions."""
    names: dict[Any, str] = {MatchAllNode: "*"}
    for namespaces, classes in ((_FUNCTIONS, False), (_MODULES, True)):
        for prefix, namespace in namespaces.items():
            for name, value in vars(namespace).items():
                if callable(value) and isinstance(value, type) is classes and not name.startswith("_"):
                    names.setdefault(value, f"{prefix}.{name}")
    return names


def operator_name(op: Any) -> str:
    """Return the name of an operator, with that of its namespace or module."""
    if isinstance(op, str):
        return f"Tensor.{op}"
    if type(op).__hash__ is not None and op in _names():
        return _names()[op]
    if hasattr(op, "__module__") and hasattr(op, "__qualname__"):
        return f"{op.__module__}.{op.__qualname__}"
    return f"{type(op).__qualname__}()"  # no operator: a declaration may hold anything


def _nested_name(pattern: Any) -> str:
    if not isinstance(pattern, tuple):
        return operator_name(pattern)
    op, *operands = pattern
    return f"{operator_name(op)}({','.join(map(_nested_name, operands))})"


def pattern_name(pattern: Any) -> str:
    """Return `nn.Conv2d+nn.ReLU` for a sequence and `nn.ReLU(operator.add(nn.Conv2d,*))` for torch's nested format.

    A tuple is a sequence unless it holds a tuple or MatchAllNode; see `config_pattern` for the entries' own patterns.
    """
    if isinstance(pattern, tuple) and not any(isinstance(part, tuple) or part is MatchAllNode for part in pattern):
        return "+".join(map(operator_name, pattern))
    return _nested_name(pattern)


class ListsAsLists(Interpreter):
    """An interpreter that passes the lists and dicts of a graph's arguments as generated code does: they can be changed."""

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, dict[str, Any]]:
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        return mutable(args), mutable(kwargs)


def mutable(value: Any) -> Any:
    """A copy of arguments with ordinary lists and dicts."""
    if isinstance(value, immutable_list):
        return [mutable(item) for item in value]
    if isinstance(value, dict) and type(value) in (dict, immutable_dict):
        return {name: mutable(item) for name, item in value.items()}
    return tuple(map(mutable, value)) if type(value) is tuple else value


OPTIONS = (
    *("in_channels", "out_channels", "in_features", "out_features", "kernel_size", "stride", "padding", "dilation"),
    *("groups", "bias", "output_padding", "padding_mode", "ceil_mode", "count_include_pad", "divisor_override"),
    *("output_size", "num_features", "num_groups", "num_channels", "affine", "track_running_stats", "negative_slope"),
    *("inplace", "dim"),
    *("start_dim", "end_dim", "scale_factor", "mode", "align_corners", "size", "num_embeddings", "embedding_dim", "p"),
    *("upscale_factor", "normalized_shape", "min_val", "max_val", "alpha", "approximate", "include_last_offset"),
)


CHANNELS = frozenset({"in_channels", "out_channels", "in_features", "out_features", "num_features", "num_channels"})


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


Rule = tuple[str, Mapping[str, Sequence[str]], Sequence[Rewriting]]


class Values(ListsAsLists):
    """Executes a network, and keeps the nodes whose values are tensors of floats, tensors of booleans, and tuples."""

    def __init__(self, graph: GraphModule) -> None:
        super().__init__(graph)
        self.floats, self.booleans, self.tuples = set[Node](), set[Node](), set[Node]()

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, tuple):
            self.tuples.add(n)
        elif isinstance(value, Tensor) and value.is_floating_point():
            self.floats.add(n)
        elif isinstance(value, Tensor) and value.dtype is torch.bool:
            self.booleans.add(n)
        return value


class Avoiding:
    """Rewrites a traced network, in place, so that its layers are none of those that rules name.

    `promised` are the operators of the config, `fixed` those of them whose results have a fixed range, and `sharing` those
    whose results share the observer of their operand.
    """

    def __init__(
        self,
        graph: GraphModule,
        rules: Sequence[Rule],
        promised: Collection[str],
        fixed: Collection[str],
        sharing: Collection[str],
    ) -> None:
        self.graph, self.rules, self.promised, self.fixed, self.sharing = graph, rules, promised, fixed, sharing
        self.avoided: dict[tuple[str, str], str] = {}
        """The rewriting of each layer, by the names of its node and of the finding."""

    def avoid(self, inputs: Sequence[Any]) -> GraphModule:
        """Return the network, after an execution with a batch that tells tensors from other values."""
        values = Values(self.graph)
        values.run(*inputs)
        before = -1
        while len(self.avoided) > before:
            before = len(self.avoided)
            self._pass(values)
        self.graph.graph.lint()
        self.graph.recompile()
        return self.graph

    def _pass(self, values: Values) -> None:
        modules = dict(self.graph.named_modules(remove_duplicate=False))
        calls = Counter(str(node.target) for node in self.graph.graph.nodes if node.op == "call_module")
        constant = set[Node]()
        for node in [*self.graph.graph.nodes]:
            if node.op == "get_attr" or (node.all_input_nodes and constant.issuperset(node.all_input_nodes)):
                constant.add(node)
            if node.target is not getattr and values.floats.isdisjoint([node, *node.all_input_nodes]):
                continue
            features = {**self._features(node, modules, constant, values), "calls": str(calls.get(str(node.target), 1))}
            for finding, conditions, rewritings in self.rules:
                if (node.name, finding) not in self.avoided and shows(features, conditions):
                    self.avoided[node.name, finding] = _first(self.graph, node, rewritings)
                    modules = dict(self.graph.named_modules(remove_duplicate=False))
                    break  # what the node is has changed

    def _features(
        self, node: Node, modules: Mapping[str, nn.Module], constant: set[Node], values: Values
    ) -> dict[str, str]:
        operands = [call_name(one, modules) for one in node.all_input_nodes]
        found = {**features_of_call(node, modules), **features_of_arguments(node, modules)}
        if computed := folded(node, modules, constant):
            found["folded"] = computed
        if other_readers(node, constant):
            found["weight_read"] = "True"
        if found["operator"] not in self.promised:
            found["unasked_codes"] = " ".join(operands)
        elif not values.booleans.isdisjoint(node.all_input_nodes):
            found["takes_booleans"] = "True"
        elif node in values.tuples:
            found["gives_tuple"] = "True"
        if found["operator"] in self.fixed and self._source(node, modules) not in self.promised:
            found["fixed_range"] = "True"
        if node in values.floats and any(map(_with_number, node.users)):
            found["shares_range"] = "True"
        if node.target is getattr and node.all_input_nodes[0].op == "get_attr":
            found["reads_lowered"] = "True"
        return found

    def _source(self, node: Node, modules: Mapping[str, nn.Module]) -> str:
        """The operator that computes the first operand of a node, however it was reshaped since."""
        source = node
        while source is node or call_name(source, modules) in self.sharing:
            if not source.all_input_nodes:
                break
            source = source.all_input_nodes[0]
        return call_name(source, modules)


def shows(features: Mapping[str, str], conditions: Mapping[str, Sequence[str]]) -> bool:
    """Whether a layer with these features fulfils all conditions."""
    return all(name in features and any(fulfils(features[name], one) for one in of) for name, of in conditions.items())


def _first(graph: GraphModule, node: Node, rewritings: Sequence[Rewriting]) -> str:
    """Apply the first rewriting that can be applied, and return its name, empty if there is none."""
    for rewrite in rewritings:
        try:
            rewrite(graph, node)
        except NotApplicable:
            continue
        return rewrite.__name__
    return ""


def _with_number(node: Node) -> bool:
    return node.target in ARITHMETIC and any(isinstance(one, int | float) for one in node.args[:2])


Dtypes = tuple[torch.dtype | None, torch.dtype | None, torch.dtype | None, torch.dtype | None, bool | None]

LEFT_OUT: list[tuple[Any, Dtypes]] = [
    # cat-in-float (pytorch/pytorch#54924): Quantized cat dequantizes its operands and concatenates in float
    (torch.cat, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    # dynamic-float16-reference: The reference model of a dynamic float16 layer rounds its input to float16, the kernels do
    # not
    (F.linear, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # the reference model is wrong
    ((F.linear, nn.ReLU), (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # the reference model is wrong
    ((F.linear, F.relu), (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # the reference model is wrong
    ((nn.Linear, nn.BatchNorm1d), (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # the reference model is wrong
    (nniqat.LinearBn1d, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # the reference model is wrong
    (nn.GRUCell, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # the reference model is wrong
    (nn.LSTMCell, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # the reference model is wrong
    (nn.RNNCell, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # the reference model is wrong
    (nn.LSTM, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # the reference model is wrong
    (nn.GRU, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # the reference model is wrong
    # embedding-4bit-jit: A 4-bit embedding that TorchScript saved cannot be loaded
    (nn.Embedding, (torch.float32, torch.float32, torch.quint4x2, None, None)),  # refuses
    (nnqat.Embedding, (torch.float32, torch.float32, torch.quint4x2, None, None)),  # refuses
    # embedding-bag-mode: Quantized EmbeddingBag always sums: it ignores its default mode, the mean, mode="max" and
    # padding_idx
    (nn.EmbeddingBag, (torch.float32, torch.float32, torch.quint8, None, None)),  # wrong numbers, silently
    (nn.EmbeddingBag, (torch.float32, torch.float32, torch.quint4x2, None, None)),  # wrong numbers, silently
    (nnqat.EmbeddingBag, (torch.float32, torch.float32, torch.quint8, None, None)),  # wrong numbers, silently
    (nnqat.EmbeddingBag, (torch.float32, torch.float32, torch.quint4x2, None, None)),  # wrong numbers, silently
    # floordiv: The configs promise floor division, which has no quantized kernel
    (operator.floordiv, (torch.quint8, torch.quint8, None, None, None)),  # refuses
    # fused-convbn-ptq: Post-training quantization leaves nni.ConvBn and LinearBn modules in float, between observers
    (nni.ConvBn1d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nni.ConvBnReLU1d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nni.ConvBn2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nni.ConvBnReLU2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nni.ConvBn3d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nni.ConvBnReLU3d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nni.LinearBn1d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nni.LinearBn1d, (torch.quint8, torch.float32, torch.qint8, torch.float32, True)),  # wrong numbers, silently
    (nni.LinearBn1d, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # wrong numbers, silently
    (nniqat.ConvBn1d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nniqat.ConvBnReLU1d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nniqat.ConvBn2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nniqat.ConvBnReLU2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nniqat.ConvBn3d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nniqat.ConvBnReLU3d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nniqat.LinearBn1d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nniqat.LinearBn1d, (torch.quint8, torch.float32, torch.qint8, torch.float32, True)),  # wrong numbers, silently
    # group-norm-not-lowered: convert_fx leaves F.group_norm in float
    (F.group_norm, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    # inplace-sigmoid-tanh: convert_fx emits in-place calls that have no quantized kernel: sigmoid_, tanh_ and others raise
    ('sigmoid_', (torch.quint8, torch.quint8, None, None, None)),  # refuses
    ('tanh_', (torch.quint8, torch.quint8, None, None, None)),  # refuses
    # linear-batchnorm-rank3: A batch norm behind a linear layer is folded along the wrong dimension for inputs of rank 3
    ((nn.Linear, nn.BatchNorm1d), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # the reference model is wrong
    ((nn.Linear, nn.BatchNorm1d), (torch.quint8, torch.float32, torch.qint8, torch.float32, True)),  # the reference model is wrong
    # matmul-in-float (pytorch/pytorch#71783): Quantized matmul multiplies in float
    (torch.matmul, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    # onednn-conv-transpose-channels: Quantized ConvTranspose on oneDNN and x86 is wrong if the numbers of input and output
    # channels differ
    (nn.ConvTranspose1d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    ((nn.ConvTranspose1d, nn.BatchNorm1d), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (F.conv_transpose1d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nn.ConvTranspose2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    ((nn.ConvTranspose2d, nn.BatchNorm2d), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (F.conv_transpose2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nn.ConvTranspose3d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    ((nn.ConvTranspose3d, nn.BatchNorm3d), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (F.conv_transpose3d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    # qat-linear-float16 (pytorch/pytorch#100654): The QAT linear modules cannot be built for the promised float16 weights
    (nn.Linear, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # refuses
    (nnqat.Linear, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # promise without effect
    ((nn.Linear, nn.ReLU), (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # refuses
    ((nn.Linear, F.relu), (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # refuses
    (nni.LinearReLU, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # refuses
    (nniqat.LinearReLU, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # promise without effect
    # rnn-reference-in-float: The reference model of a dynamic recurrent layer computes the hidden product in float, the
    # kernels do not
    (nn.LSTM, (torch.quint8, torch.float32, torch.qint8, torch.float32, True)),  # the reference model is wrong
    (nn.GRU, (torch.quint8, torch.float32, torch.qint8, torch.float32, True)),  # the reference model is wrong
    # softmax-in-float (pytorch/pytorch#75017): Quantized softmax computes in float
    (nn.Softmax, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    # stack-in-float: Quantized stack dequantizes its operands and stacks in float
    (torch.stack, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    # state-dict-qparams (pytorch/pytorch#120708): The state_dict of a lowered model lacks the output scale and zero point
    # of its modules
    (nn.ELU, (torch.quint8, torch.quint8, None, None, None)),  # depends on what must not matter
    (nn.PReLU, (torch.quint8, torch.quint8, None, None, None)),  # depends on what must not matter
    # tensor-hardsigmoid: The configs promise tensor methods that do not exist
    ('hardsigmoid', (torch.quint8, torch.quint8, None, None, None)),  # promise without effect
    ('hardsigmoid_', (torch.quint8, torch.quint8, None, None, None)),  # promise without effect
    # tensor-shape-dead: The entry for Tensor.shape has no effect
    ('shape', (torch.quint8, torch.quint8, None, None, None)),  # promise without effect
    ('size', (torch.quint8, torch.quint8, None, None, None)),  # promise without effect
]
"""Entries of the config that do not hold, by their patterns and dtypes: of input, output, weight and bias, and whether it is
dynamic."""


def declared() -> BackendConfig:
    """Return the config with all that it promises."""
    backend_config = get_fbgemm_backend_config()
    return backend_config


def backend_config() -> BackendConfig:
    """Return the config without what does not hold."""
    config = BackendConfig("trusted_x86")
    for entry in declared().configs:
        kept = copy.copy(entry)
        kept.dtype_configs = [one for one in entry.dtype_configs if not _is_left_out(entry, one)]
        if kept.dtype_configs:
            config.set_backend_pattern_config(kept)
    return config


def _is_left_out(entry: BackendPatternConfig, one: DTypeConfig) -> bool:
    pattern = entry.pattern if entry._pattern_complex_format is None else entry._pattern_complex_format
    dtypes = (one.input_dtype, one.output_dtype, one.weight_dtype, one.bias_dtype, one.is_dynamic)
    return (pattern, dtypes) in LEFT_OUT


PROMISED = frozenset([
    'F.adaptive_avg_pool1d', 'F.adaptive_avg_pool2d', 'F.adaptive_avg_pool3d', 'F.avg_pool1d', 'F.avg_pool2d',
    'F.avg_pool3d', 'F.conv1d', 'F.conv2d', 'F.conv3d', 'F.dropout', 'F.elu', 'F.hardsigmoid', 'F.hardswish',
    'F.hardtanh', 'F.hardtanh_', 'F.instance_norm', 'F.interpolate', 'F.leaky_relu', 'F.linear', 'F.max_pool1d',
    'F.max_pool2d', 'F.max_pool3d', 'F.pixel_shuffle', 'F.pixel_unshuffle', 'F.relu', 'F.relu6', 'Tensor.clamp',
    'Tensor.contiguous', 'Tensor.detach', 'Tensor.detach_', 'Tensor.mean', 'Tensor.permute', 'Tensor.relu',
    'Tensor.relu_', 'Tensor.repeat', 'Tensor.repeat_interleave', 'Tensor.reshape', 'Tensor.resize_', 'Tensor.sigmoid',
    'Tensor.squeeze', 'Tensor.squeeze_', 'Tensor.tanh', 'Tensor.transpose', 'Tensor.unsqueeze', 'Tensor.unsqueeze_',
    'Tensor.view', 'nn.AdaptiveAvgPool1d', 'nn.AdaptiveAvgPool2d', 'nn.AdaptiveAvgPool3d', 'nn.AvgPool1d',
    'nn.AvgPool2d', 'nn.AvgPool3d', 'nn.BatchNorm2d', 'nn.BatchNorm3d', 'nn.Conv1d', 'nn.Conv2d', 'nn.Conv3d',
    'nn.Dropout', 'nn.Embedding', 'nn.GRUCell', 'nn.Hardsigmoid', 'nn.Hardswish', 'nn.Hardtanh', 'nn.Identity',
    'nn.InstanceNorm1d', 'nn.InstanceNorm2d', 'nn.InstanceNorm3d', 'nn.LSTMCell', 'nn.LeakyReLU', 'nn.Linear',
    'nn.MaxPool1d', 'nn.MaxPool2d', 'nn.MaxPool3d', 'nn.PixelShuffle', 'nn.PixelUnshuffle', 'nn.RNNCell', 'nn.ReLU',
    'nn.ReLU6', 'nn.Sigmoid', 'nn.Tanh', 'nni.BNReLU2d', 'nni.BNReLU3d', 'nni.ConvReLU1d', 'nni.ConvReLU2d',
    'nni.ConvReLU3d', 'nni.LinearReLU', 'nniqat.ConvReLU1d', 'nniqat.ConvReLU2d', 'nniqat.ConvReLU3d',
    'nniqat.LinearReLU', 'nnqat.Conv1d', 'nnqat.Conv2d', 'nnqat.Conv3d', 'nnqat.Embedding', 'nnqat.Linear',
    'operator.add', 'operator.mul', 'torch.add', 'torch.clamp', 'torch.flatten', 'torch.mean', 'torch.mul',
    'torch.narrow', 'torch.repeat_interleave', 'torch.sigmoid', 'torch.squeeze', 'torch.tanh', 'torch.transpose',
    'torch.unsqueeze'
])
"""The operators of the config."""

FIXED = frozenset([
    'F.hardsigmoid', 'Tensor.sigmoid', 'Tensor.tanh', 'nn.Hardsigmoid', 'nn.Sigmoid', 'nn.Tanh', 'torch.sigmoid',
    'torch.tanh'
])
"""Those whose results have a fixed range."""

SHARING = frozenset([
    'F.adaptive_avg_pool1d', 'F.adaptive_avg_pool2d', 'F.adaptive_avg_pool3d', 'F.avg_pool1d', 'F.avg_pool2d',
    'F.avg_pool3d', 'F.hardtanh', 'F.hardtanh_', 'F.interpolate', 'F.max_pool1d', 'F.max_pool2d', 'F.max_pool3d',
    'F.pixel_shuffle', 'F.pixel_unshuffle', 'F.relu', 'F.relu6', 'Tensor.clamp', 'Tensor.contiguous', 'Tensor.detach',
    'Tensor.detach_', 'Tensor.mean', 'Tensor.permute', 'Tensor.relu', 'Tensor.relu_', 'Tensor.repeat',
    'Tensor.repeat_interleave', 'Tensor.reshape', 'Tensor.resize_', 'Tensor.squeeze', 'Tensor.squeeze_',
    'Tensor.transpose', 'Tensor.unsqueeze', 'Tensor.unsqueeze_', 'Tensor.view', 'nn.AdaptiveAvgPool1d',
    'nn.AdaptiveAvgPool2d', 'nn.AdaptiveAvgPool3d', 'nn.AvgPool1d', 'nn.AvgPool2d', 'nn.AvgPool3d', 'nn.Hardtanh',
    'nn.Identity', 'nn.MaxPool1d', 'nn.MaxPool2d', 'nn.MaxPool3d', 'nn.PixelShuffle', 'nn.PixelUnshuffle', 'nn.ReLU',
    'nn.ReLU6', 'torch.clamp', 'torch.flatten', 'torch.mean', 'torch.narrow', 'torch.repeat_interleave',
    'torch.squeeze', 'torch.transpose', 'torch.unsqueeze'
])
"""Those whose results share the observer of their operand."""

RULES: list[Rule] = [
    # convert_fx gives every call of a module that is called twice the output qparams of the last call
    ('called-twice', {'operator': ['nn.Conv?d', 'nn.ConvTranspose?d', 'nn.Linear', 'nn.BatchNorm?d', 'nn.LayerNorm', 'nn.PReLU', 'nn.LeakyReLU', 'nn.Hardswish', 'nn.ELU', 'nn.InstanceNorm?d'], 'calls': ['>=2']}, (copy_module, leave_in_float,)),
    # convert_fx raises for convolutions with padding="same"
    ('conv-padding-same', {'operator': ['nn.Conv?d', 'F.conv?d'], 'padding': ['same']}, (pad_by_numbers, leave_in_float,)),
    # convert_fx raises for functional convolutions whose options are omitted, keywords or integers
    ('functional-conv-options', {'operator': ['F.conv?d'], 'arguments': ['missing', 'numbers']}, (give_by_position, leave_in_float,)),
    # Quantized instance norm loses the variance to cancellation in float32
    ('instance-norm-cancellation', {'operator': ['nn.InstanceNorm[23]d', 'F.instance_norm']}, (make_contiguous, leave_in_float,)),
    # prepare_fx and convert_fx do not see an input that is passed by keyword
    ('keyword-dropped', {'operator': ['F.conv?d', 'F.linear'], 'keywords': ['*weight*']}, (give_by_position, leave_in_float,)),
    # Quantized PReLU scales positive values down if all slopes are below 1
    ('prelu-one-on-grid-of-slope', {'operator': ['nn.PReLU'], 'greatest_slope': ['<1']}, (split_prelu, leave_in_float,)),
    # Quantized add and mul with a scalar choose the output's qparams themselves, against the config
    ('scalar-own-qparams', {'operator': ['F.conv?d'], 'folded': ['*operator.mul*', '*torch.mul*']}, (compute_weight, leave_in_float,)),
    # prepare_fx fuses a module that is called twice for one of its calls, and changes the others
    ('fused-in-every-call', {'calls': ['>=2']}, (copy_module, leave_in_float,)),
    # A view behind a quantized convolution raises because its result is channels-last
    ('view-channels-last', {'operator': ['Tensor.view']}, (reshape, make_contiguous, leave_in_float,)),
    # FBGEMM's depthwise convolution saturates for codes beyond the reduced range
    ('depthwise-beyond-reduced-range', {'operator': ['nn.Conv2d'], 'kernel_size': ['3x3', '5x5', '7x7'], 'dilation': ['1x1'], 'groups': ['>100']}, (narrow_weight, leave_in_float,)),
    # A value and its sum or product with a number share one observer, and the smaller of both loses most of its codes
    ('range-shared-with-multiple', {'shares_range': ['True']}, (compute_with_tensor, leave_in_float,)),
    # A lowered layer norm hands codes to a user that takes its float output
    ('layer-norm-used-in-float', {'unasked_codes': ['*nn.LayerNorm*', '*F.layer_norm*']}, (leave_source_in_float, leave_in_float,)),
    # convert_fx raises KeyError where something else reads the weight of a functional layer
    ('folded-weight-read', {'operator': ['F.conv?d', 'F.linear'], 'weight_read': ['True']}, (compute_weight, leave_in_float,)),
    # A lowered model raises where it reads a property of a module's weight
    ('weight-read-after-lowering', {'reads_lowered': ['True']}, (read_when_traced, leave_in_float,)),
    # quantized::add rounds a Python scalar to the grid of the tensor before it adds it
    ('codes-add-scalar-rounded', {'operator': ['operator.add', 'torch.add'], 'arg1': ['*']}, (leave_in_float,)),
    # quantized::add rounds a Python scalar to the grid of the tensor before it adds it
    ('codes-add-scalar-rounded', {'operator': ['operator.add', 'torch.add'], 'arg0': ['*']}, (leave_in_float,)),
    # prepare_fx observes a tensor of booleans, and the observer raises
    ('boolean-observed', {'takes_booleans': ['True']}, (leave_in_float,)),
    # prepare_fx puts the fixed range of sigmoid, hardsigmoid, tanh and softmax on an input that no other operator quantizes
    ('fixed-range-on-input', {'fixed_range': ['True']}, (leave_in_float,)),
    # Quantized PReLU rounds its slope to 8 bits, the reference model does not
    ('prelu-slope-rounded', {'operator': ['nn.PReLU'], 'greatest_slope': ['>=1']}, (leave_in_float,)),
    # convert_fx quantizes weights of float32 alone
    ('weights-not-float32', {'weight_dtype': ['float16', 'bfloat16', 'float64']}, (leave_in_float,)),
    # prepare_fx observes a tuple as a tensor, and the observer raises
    ('tuple-observed', {'gives_tuple': ['True']}, (leave_in_float,)),
    # Operators that the mapping leaves in float are quantized between quantized operators
    ('quantized-without-qconfig', {'operator': ['F.conv_transpose1d', 'F.conv_transpose2d', 'F.conv_transpose3d', 'F.group_norm', 'F.layer_norm', 'F.sigmoid', 'F.softmax', 'F.tanh', 'Tensor.sigmoid_', 'Tensor.tanh_', 'nn.ConvTranspose1d', 'nn.ConvTranspose2d', 'nn.ConvTranspose3d', 'nn.ELU', 'nn.EmbeddingBag', 'nn.GRU', 'nn.LSTM', 'nn.LayerNorm', 'nn.PReLU', 'nn.Softmax', 'operator.floordiv', 'torch.cat', 'torch.matmul', 'torch.softmax', 'torch.stack']}, (leave_in_float,)),
]
"""What layers show a finding, by its id, and the rewritings that avoid it, of which the first that applies is taken."""


def trusted(model: nn.Module, inputs: Sequence[Any]) -> GraphModule:
    """Return a float model in eval mode, traced, and rewritten so that no layer is as rules say. It computes the same."""
    with torch.no_grad():
        return Avoiding(traced(model), RULES, PROMISED, FIXED, SHARING).avoid(inputs)


def qconfig_mapping(rewritten: nn.Module) -> QConfigMapping:
    """Return torch's default mapping for what `trusted` returns, with narrower weights where these are needed."""
    return narrowed(get_default_qconfig_mapping("x86"), rewritten)


def custom_config() -> PrepareCustomConfig:
    """Return what `prepare_fx` has to be told about layers that stay in float."""
    return PrepareCustomConfig().set_non_traceable_module_classes([InFloat])


def quantize(model: nn.Module, batches: Sequence[tuple[Any, ...]]) -> GraphModule:
    """Return a float model in eval mode as integers of the engine x86, calibrated with batches of arguments."""
    torch.backends.quantized.engine = "x86"
    config, graph = backend_config(), trusted(model, batches[0])
    prepared = prepare_fx(graph, qconfig_mapping(graph), batches[0], custom_config(), backend_config=config)
    with torch.no_grad():
        for batch in batches:
            prepared(*batch)
    return convert_fx(prepared, backend_config=config)
