"""The traced float model as groups of nodes, where each group is quantized as one operator."""

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from .arithmetic import Codes
from .layers import LAYERS
from .scheme import Grid, Scheme


class _Tracer(fx.Tracer):
    """Traces the model's own `forward` only: every submodule stays one call."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes that are quantized as one operator, in execution order.

    `pattern` is False for a node outside the pattern under test: an operator before, after or beside it. `keeps_qparams` says
    of such a node whether its output keeps its input's qparams.
    """

    nodes: tuple[fx.Node, ...]
    pattern: bool = True
    keeps_qparams: bool = False

    @property
    def result(self) -> fx.Node:
        return self.nodes[-1]

    @property
    def inputs(self) -> list[fx.Node]:
        """The nodes outside the group that its nodes read, each once, without parameters."""
        sources = [source for node in self.nodes for source in node.all_input_nodes if source not in self.nodes]
        return [node for node in dict.fromkeys(sources) if node.op != "get_attr"]


@dataclass
class Graph:
    """A traced model with its groups in execution order."""

    model: nn.Module
    scheme: Scheme
    graph: fx.Graph = field(init=False)
    groups: list[Group] = field(init=False)
    modules: dict[str, nn.Module] = field(init=False)

    def __post_init__(self) -> None:
        self.graph = _Tracer(autowrap_modules=()).trace(self.model)  # type: ignore[arg-type]
        self.modules = dict(self.model.named_modules())
        calls = [node for node in self.graph.nodes if node.op.startswith("call_") and not is_shape_query(node)]
        before, after = self._outside(calls)
        rest = [node for node in calls if not {node} & {group.result for group in (*before, *after)}]
        each = len(rest) // self.scheme.applications if self.scheme.fused else 1
        pattern = [Group(tuple(rest[start : start + each])) for start in range(0, len(rest), each)]
        self.groups = [*before, *pattern, *after]

    def _outside(self, calls: list[fx.Node]) -> tuple[list[Group], list[Group]]:
        """The operators before the pattern, among them one beside it that does not read its result, and those after it."""
        first, last = self.scheme.before, self.scheme.after
        before = dict(zip(calls, first, strict=False))
        after = dict(zip(calls[len(calls) - len(last) :], last, strict=True))
        for node in calls:
            if node.target in ("other", "prelude"):
                before[node] = self.scheme.prelude_keeps and not isinstance(self.module(node), LAYERS)
        return [[Group((node,), False, keeps) for node, keeps in nodes.items()] for nodes in (before, after)]  # type: ignore[return-value]

    @property
    def placeholders(self) -> list[fx.Node]:
        return [node for node in self.graph.nodes if node.op == "placeholder"]

    def module(self, node: fx.Node) -> Any:
        """The module that a node calls, or None."""
        return self.modules[str(node.target)] if node.op == "call_module" else None

    def parameter(self, node: fx.Node) -> Tensor:
        """The parameter or buffer that a `get_attr` node reads: float64, or integers."""
        value: Any = self.model
        for part in str(node.target).split("."):
            value = getattr(value, part)
        tensor: Tensor = value.detach()
        return tensor.double() if tensor.is_floating_point() else tensor

    def shares_qparams(self, group: Group) -> bool:
        """Whether a group's output keeps its input's qparams."""
        if not group.pattern:
            return group.keeps_qparams
        first = group.nodes[0]
        return _tensor_count((first.args, first.kwargs)) in self.scheme.shares

    def stays_float(self, node: fx.Node) -> bool:
        """Whether a node is an input that no operator quantizes."""
        return node.op == "placeholder" and str(node.target) in self.scheme.floats

    def is_taken(self, node: fx.Node) -> bool:
        """Whether an operator takes a node's value."""
        return any(node in group.inputs for group in self.groups)

    def has_float_result(self, group: Group) -> bool:
        """Whether a group's result is not quantized as such: where another operator takes it, that quantizes its input."""
        return self.scheme.float_results and not self.shares_qparams(group)

    def grid(self, group: Group | None) -> Grid:
        """The grid of a group's output, or of the model's inputs for None."""
        outside = self.scheme.others if group is None or not group.pattern else None
        grid = outside or self.scheme.activation
        assert grid is not None
        return grid

    def outputs(self, values: dict[fx.Node, Any]) -> tuple[Any, ...]:
        """The model's outputs, flattened, from the values of its nodes."""
        (output,) = (node for node in self.graph.nodes if node.op == "output")
        return tuple(tree_leaves(fx.node.map_arg(output.args[0], lambda node: values[node])))


def is_shape_query(node: fx.Node) -> bool:
    """Whether a node reads a tensor's shape and none of its values."""
    if node.op == "call_method":
        return node.target == "size"
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_shape_query(node.args[0])
    return node.target is getattr


def value_of(values: dict[fx.Node, Any], node: fx.Node) -> Any:
    """The value of a node. A shape query is evaluated on first use and stored in `values`."""
    if node not in values:
        arguments: list[Any] = [value_of(values, part) if isinstance(part, fx.Node) else part for part in node.args]
        subject = arguments[0].position if isinstance(arguments[0], Codes) else arguments[0]
        function: Any = torch.Tensor.size if node.op == "call_method" else node.target
        values[node] = function(subject, *arguments[1:], **node.kwargs)
    return values[node]


def _tensor_count(arguments: Any) -> int:
    """The number of tensors among an operator's arguments. A tensor that is passed twice counts twice."""
    if isinstance(arguments, fx.Node):
        return int(not is_shape_query(arguments))
    if isinstance(arguments, dict):
        return sum(map(_tensor_count, arguments.values()))
    return sum(map(_tensor_count, arguments)) if isinstance(arguments, tuple | list) else 0
