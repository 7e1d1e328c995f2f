"""Time and inner conversions of each node of a lowered network."""

import time
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.fx import GraphModule, Interpreter, Node

from conformance.engines.trace import conversions_inside, inner_conversion

from .network import Batch, copied
from .values import ListsAsLists

PASSES = 2
"""Passes that are timed; the fastest counts."""

MARK = "audit node "
"""Beginning of the names by which the profiler's events of a node are found."""


class NodeTimer(ListsAsLists, Interpreter):
    """Notes in `seconds` the fastest time of each node by its name: that of what it calls, without the interpreter's own work
    around the call."""

    def __init__(self, model: GraphModule) -> None:
        super().__init__(model)
        self.seconds: dict[str, float] = {}
        self._node = ""

    def run_node(self, n: Node) -> Any:
        self._node = n.name
        return super().run_node(n) if n.op.startswith("call") else self._timed(super().run_node, (n,), {})

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._timed(target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        own, *rest = args
        return self._timed(getattr(own, target), tuple(rest), kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._timed(self.fetch_attr(target), args, kwargs)

    def _timed(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        started = time.perf_counter()
        result = called(*args, **kwargs)
        elapsed = time.perf_counter() - started
        self.seconds[self._node] = min(elapsed, self.seconds.get(self._node, float("inf")))
        return result


class _Marked(ListsAsLists, Interpreter):
    def run_node(self, n: Node) -> Any:
        with record_function(MARK + n.name):
            return super().run_node(n)


def shares(model: GraphModule, batch: Batch) -> dict[str, float]:
    """The share of each node in the time of an execution, by name."""
    timer = NodeTimer(model)
    with torch.no_grad():
        for _ in range(PASSES):
            timer.run(*copied(batch))
    total = sum(timer.seconds.values()) or 1.0
    return {name: seconds / total for name, seconds in timer.seconds.items()}


def inner_conversions(model: GraphModule, batch: Batch) -> dict[str, tuple[str, ...]]:
    """For each node by name, the conversions to or from float that its kernels make inside of themselves, as `outer >
    inner`."""
    with torch.no_grad(), conversions_inside() as inside:
        _Marked(model).run(*copied(batch))
    found: dict[str, list[str]] = {}
    for (node, *kernels), name in inside:
        if kernels and node.startswith(MARK):
            found.setdefault(node.removeprefix(MARK), []).append(inner_conversion(kernels[0], name))
    return {node: tuple(conversions) for node, conversions in found.items()}
