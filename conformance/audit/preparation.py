"""Preparing an exported network with a quantizer that may refuse a part of it: the rest is prepared all the same."""

import copy
import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule, Node, map_arg

from conformance.errors import Failure
from conformance.models import pt2e

PATHS = "nn_module_stack"
"""The field of `meta` that has path and class of each module around a node, by a name that tells its calls apart."""
SOURCES = (PATHS, "torch_fn", "source_fn_stack")
"""The fields of `meta` by which quantizers find the operators of a module or a function."""
CALL = "@"
"""What is between a module's name and the number of a call, unless it is the first."""


@dataclass(frozen=True)
class Refused:
    """Operators, by the names of their nodes, for which preparing raises. If `apart`, each call of their module was taken for
    a module of its own; otherwise they were left in float."""

    names: tuple[str, ...]
    error: Failure
    apart: bool = False


def prepared(graph: GraphModule, make: Callable[[], Any], *, qat: bool) -> tuple[GraphModule, tuple[Refused, ...]]:
    """Return an exported graph with the observers of the quantizer that `make` returns, and what it refuses.

    If preparing raises, the calls of a module are taken for modules of their own, as if the network had a copy for each.
    If it still raises, the operators that the quantizer is at are hidden from it, the last one first, with all others of the
    kind and the same constants. Raises the first exception if it is at none.
    """
    try:
        return _prepared_once(graph, make, qat=qat), ()
    except Exception as error:
        first = last = error
    refused: list[Refused] = []
    if again := tuple(node.name for node in _called_again(graph)):
        refused.append(Refused(again, Failure.of(first), apart=True))
        try:
            return _prepared_once(graph, make, qat=qat, apart=True), tuple(refused)
        except Exception as error:
            last = error
    if Failure.of(last) == Failure.of(first):
        refused.clear()  # it raises for another reason than a module that is called again
    apart, hidden = bool(refused), set[str]()
    while at := [node for node in _nodes_at(last) if node.name not in hidden]:
        kind = _kind(at[-1])
        alike = tuple(node.name for node in graph.graph.nodes if node.op == "call_function" and _kind(node) == kind)
        if hidden.issuperset(alike):
            break
        hidden.update(alike)
        refused.append(Refused(alike, Failure.of(last)))
        try:
            return _prepared_once(graph, make, qat=qat, apart=apart, hidden=hidden), tuple(refused)
        except Exception as error:
            last = error
    raise first


def _prepared_once(
    graph: GraphModule, make: Callable[[], Any], *, qat: bool, apart: bool = False, hidden: Collection[str] = ()
) -> GraphModule:
    own = copy.deepcopy(graph)
    for node in _called_again(own) if apart else ():
        (*outer, (name, (path, kind))) = node.meta[PATHS].items()
        node.meta[PATHS] = dict([*outer, (name, (path + CALL + name.rpartition(CALL)[2], kind))])
    kept = {
        node.name: {field: node.meta.pop(field) for field in SOURCES if field in node.meta}
        for node in own.graph.nodes
        if node.name in hidden
    }
    found = pt2e.prepared_graph(own, make(), qat=qat)
    for node in found.graph.nodes:
        node.meta |= kept.get(node.name, {})
    return found


def _called_again(graph: GraphModule) -> Iterator[Node]:
    """Yield the operators in a module that has been called before."""
    for node in graph.graph.nodes:
        paths = node.meta.get(PATHS) or {}
        if node.op == "call_function" and paths and CALL in [*paths][-1]:
            yield node


def _nodes_at(error: Exception) -> list[Node]:
    """The operators that the innermost function which has any was at when it raised, in order of the graph."""
    for frame, _ in reversed([*traceback.walk_tb(error.__traceback__)]):
        found = {one for one in frame.f_locals.values() if isinstance(one, Node) and one.op == "call_function"}
        if found:
            return [node for graph in {one.graph for one in found} for node in graph.nodes if node in found]
    return []


def _kind(node: Node) -> tuple[object, str]:
    """An operator and the constants that it is called with."""
    return node.target, str(map_arg((node.args, node.kwargs), lambda _: None))
