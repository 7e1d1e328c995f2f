"""Rules about layers of a traced network, and the rewritings that avoid what they name.

torch-only, because the modules of trusted configs inline this source.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from conformance.audit.features import features_of_arguments, features_of_call, folded, other_readers
from conformance.audit.options import call_name
from conformance.audit.values import ListsAsLists
from conformance.repair.rewrites import ARITHMETIC, NotApplicable, Rewriting
from conformance.results.causes import fulfils

Rule = tuple[str, Mapping[str, Sequence[str]], Sequence[Rewriting]]
"""What a finding of the ledger says of layers: its id, conditions on features of a layer, each with globs or relations of
which one has to hold, and the rewritings that avoid it, of which the first that applies is taken."""


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
