"""What torch.ao does to the nodes of a graph, recorded while it does it: which patterns match, and what replaces what."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph, GraphModule, Node

from .torchs import fuse, prepare


@dataclass(frozen=True)
class Matches:
    """The patterns that `prepare_fx` matched, in the format of the config's own table, by the names of nodes.

    `fused` are those of fused modules, by each of their nodes; `observed` those that decide which observers a node gets, and
    `last` the last node of each of these matches, by each of its nodes.
    `traced` is the network as it was traced, before fusion; `members` are the nodes of each fusion, by each of them.
    """

    fused: dict[str, Any] = field(default_factory=dict)
    observed: dict[str, Any] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    members: dict[str, frozenset[str]] = field(default_factory=dict)
    traced: list[GraphModule] = field(default_factory=list)


@contextmanager
def matches_recorded(found: Matches) -> Iterator[None]:
    """Record in this scope which patterns match."""
    in_fusion, in_prepare = fuse._find_matches, prepare._find_matches

    def find_fusions(root: GraphModule, graph: Graph, patterns: dict[Any, Any]) -> Any:
        found.traced.append(GraphModule(root, copy.deepcopy(graph)))
        matches = in_fusion(root, graph, patterns)
        for name, (last, *_) in matches.items():
            found.members[name] = frozenset(other for other, (its_last, *_) in matches.items() if its_last is last)
        found.fused.update({name: pattern for name, (_, pattern, *_) in matches.items()})
        return matches

    def find_matches(*arguments: Any, **options: Any) -> Any:
        matches = in_prepare(*arguments, **options)
        found.observed.update({name: pattern for name, (_, _, pattern, *_) in matches.items()})
        found.last.update({name: last.name for name, (last, *_) in matches.items()})
        return matches

    fuse._find_matches, prepare._find_matches = find_fusions, find_matches
    try:
        yield
    finally:
        fuse._find_matches, prepare._find_matches = in_fusion, in_prepare


@contextmanager
def replacements_recorded() -> Iterator[dict[str, str]]:
    """Record in this scope which node's value each node has taken over, by their names: the last one, where it took
    several."""
    taken: dict[str, str] = {}
    replace: Callable[..., Any] = Node.replace_all_uses_with

    def recorded(self: Node, by: Node, *arguments: Any, **options: Any) -> Any:
        taken[by.name] = taken.get(self.name, self.name)
        return replace(self, by, *arguments, **options)

    Node.replace_all_uses_with = recorded  # type: ignore[method-assign, assignment]
    try:
        yield taken
    finally:
        Node.replace_all_uses_with = replace  # type: ignore[method-assign]


def equivalents(lowered: GraphModule, reference: GraphModule, taken: Mapping[str, str]) -> dict[Node, Node]:
    """The node of a reference model that has the value of each node of the model that was lowered from it, where one has."""
    nodes = {node.name: node for node in reference.graph.nodes}
    return {node: nodes[name] for node in lowered.graph.nodes if (name := taken.get(node.name, node.name)) in nodes}
