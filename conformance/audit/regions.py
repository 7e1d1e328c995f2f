"""Regions of a network that PT2E has converted: the operators between one quantization and the next, cut out as models.

In a converted graph every operator computes in float, between a dequantize of each operand and a quantize of the result, so a
region that takes and returns values on the same grids is a program of its own for any engine.
"""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from conformance.engines.decomposed import is_dequantize, is_quantize
from conformance.models.pt2e import is_annotated


def takes_one(node: Node) -> bool:
    """Whether a node takes one of the values that an operator returns."""
    return node.target is operator.getitem


@dataclass(frozen=True)
class Region:
    """Operators that an engine may execute as one, in order. `head` takes the operands of all."""

    nodes: tuple[Node, ...]

    @property
    def head(self) -> Node:
        return self.nodes[0]

    @property
    def operators(self) -> tuple[Node, ...]:
        """The nodes without those that take one of several values."""
        return tuple(node for node in self.nodes if not takes_one(node))

    @property
    def name(self) -> str:
        return "+".join(node.name for node in self.nodes)


@dataclass(frozen=True)
class Cut:
    """A part of a converted graph as a model. `inputs` are the nodes of the whole graph whose values it takes, quantize calls
    for those on a grid, and `outputs` those whose values it returns, dequantized if they are quantize calls. `own` has the
    node of the part for each node of the whole graph that it contains."""

    model: GraphModule
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    own: Mapping[Node, Node]


class Regions:
    """Divides a converted graph, and cuts parts out of it."""

    def __init__(self, converted: GraphModule) -> None:
        self.converted = converted
        self.nodes = [*converted.graph.nodes]
        self.order = {node: number for number, node in enumerate(self.nodes)}
        self.constant = set[Node]()
        self.repeated = set[Node]()
        for node in self.nodes:
            if node.op == "get_attr" or self._computes_constant(node):
                self.constant.add(node)
            elif self._converts_dynamically(node):
                self.repeated.add(node)

    def _computes_constant(self, node: Node) -> bool:
        """Whether a node computes from constants, and in float: one in integers is an operator of the network."""
        return node.op == "call_function" and self.constant.issuperset(node.all_input_nodes) and not is_annotated(node)

    def _converts_dynamically(self, node: Node) -> bool:
        """Whether a node chooses qparams at each call, or quantizes or dequantizes with them: a layer has its own."""
        if node.op != "call_function":
            return False
        behind = any(one in self.repeated for one in node.all_input_nodes)
        return "choose_qparams" in str(node.target) or (behind and self._converts(node))

    @staticmethod
    def _converts(node: Node) -> bool:
        return is_quantize(node) or is_dequantize(node) or takes_one(node)

    def quantizes(self, node: Node) -> bool:
        """Whether a node quantizes a value of the network with qparams that calibration has chosen."""
        return is_quantize(node) and node not in self.constant and node not in self.repeated

    def dequantizes(self, node: Node) -> bool:
        """Whether a node dequantizes what such a node has quantized."""
        return is_dequantize(node) and node not in self.constant and node not in self.repeated

    def source(self, node: Node) -> Node:
        """The node whose value a quantize call quantizes; any other node itself."""
        source = node.args[0] if self.quantizes(node) else node
        assert isinstance(source, Node)
        return source

    def computes(self, node: Node) -> bool:
        """Whether a node is an operator of the network."""
        if node.op != "call_function" or node in self.constant or node in self.repeated:
            return False
        return not (is_quantize(node) or is_dequantize(node))

    @cached_property
    def all(self) -> tuple[Region, ...]:
        """The regions in order of the network: each operator is in one."""
        groups: dict[Node, list[Node]] = {}
        for node in filter(self.computes, self.nodes):
            before = self._fused_with(node)
            own = groups[node] = groups.get(before, []) if before is not None else []
            own.append(node)
        found = {id(group): tuple(group) for group in groups.values()}
        regions = map(Region, found.values())
        # what takes a value comes after the operator, and may come before the node that takes another value
        return tuple(sorted(regions, key=lambda region: self.order[region.operators[-1]]))

    def _fused_with(self, node: Node) -> Node | None:
        """The operator before one that it is executed with: another annotated one whose value is not quantized between them
        and goes nowhere else, or the one that returns it among several values."""
        if takes_one(node):
            return node.all_input_nodes[0]
        if not is_annotated(node):
            return None
        sources = [one for one in node.all_input_nodes if self.computes(one)]
        fused = len(sources) == 1 and is_annotated(sources[0]) and len(sources[0].users) == 1
        return sources[0] if fused else None

    def cut(self, regions: Sequence[Region]) -> Cut:
        """Regions as one model, which takes the values of other ones and returns those that others take."""
        inside = {node for region in regions for node in region.nodes}
        graph, own, inputs = Graph(), dict[Node, Node](), list[Node]()

        def copied(node: Node) -> Node:
            if node not in own:
                own[node] = placed(node)
            return own[node]

        def placed(node: Node) -> Node:
            if node in self.constant or node in self.repeated or node in inside or self.dequantizes(node):
                return graph.node_copy(node, copied)
            if self.quantizes(node):
                source = node.args[0]
                if isinstance(source, Node) and source in inside:
                    return graph.node_copy(node, copied)
                inputs.append(node)
                given = graph.placeholder(f"x{len(inputs)}")
                return graph.node_copy(node, lambda one: given if one is source else copied(one))
            inputs.append(node)
            return graph.placeholder(f"x{len(inputs)}")

        for node in sorted(inside, key=self.order.__getitem__):
            _keep_input(copied(node))
        outputs = [*self._outputs(inside)]
        results = [self._returned(graph, copied(node), node) for node in outputs]
        graph.output(tuple(results))
        _placeholders_first(graph)
        graph.lint()
        return Cut(GraphModule(self.converted, graph), tuple(inputs), tuple(outputs), own)

    def _outputs(self, inside: set[Node]) -> Iterator[Node]:
        """Yield the nodes whose values others than these take, of which that are quantized their quantize calls."""
        for node in sorted(inside, key=self.order.__getitem__):
            users = [user for user in node.users if user not in inside and self._leads_outside(user, inside)]
            quantized = [user for user in users if self.quantizes(user)]
            yield from quantized
            if len(quantized) < len(users):
                yield node

    def _leads_outside(self, node: Node, inside: set[Node]) -> bool:
        """Whether a value gets to an operator outside, or is returned, through conversions alone."""
        if self.computes(node) or node.op == "output":
            return node not in inside
        return any(self._leads_outside(user, inside) for user in node.users)

    def _returned(self, graph: Graph, result: Node, node: Node) -> Node:
        if not self.quantizes(node):
            return result
        dequantize = next(user for user in node.users if is_dequantize(user))
        source = node
        return graph.node_copy(dequantize, lambda one: result if one is source else _constant(graph, one))


def _keep_input(node: Node) -> None:
    """Let an operator of a part return what it would write to an input of the part, which in the network is no input."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return
    written = node.args[0]
    packet = getattr(getattr(torch.ops, target.namespace), target._opname.removesuffix("_"), None)
    if isinstance(written, Node) and written.op == "placeholder" and hasattr(packet, target._overloadname):
        node.target = getattr(packet, target._overloadname)


def _constant(graph: Graph, node: Node) -> Any:
    """A copy of an attribute that a graph reads, such as the scales of channels."""
    return graph.get_attr(str(node.target))


def _placeholders_first(graph: Graph) -> None:
    """Move the inputs of a graph before everything else, in their order."""
    anchor = next(node for node in graph.nodes if node.op != "placeholder")
    for node in [node for node in graph.nodes if node.op == "placeholder"]:
        anchor.prepend(node)
