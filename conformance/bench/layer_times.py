"""Times of the layers of a lowered network, beside those of the same operators in the float network.

Layers are described when a network is converted, and timed in processes that load it. Saving a graph renames its nodes, so a
node is known by what it calls: as the first, second, … node that calls the same.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from conformance.audit.conversion import Converted
from conformance.audit.execution import Execution, Step
from conformance.audit.layers import Layers
from conformance.audit.network import copied
from conformance.audit.values import NodeTimer
from conformance.results.audits import Arithmetic

from .timer import uncollected
from .timings import LayerTime

SECONDS, FEWEST, MOST = 1.0, 5, 50
"""Seconds for which two networks are executed to time their nodes, and bounds on the number of executions of each."""


@dataclass(frozen=True)
class DescribedLayer:
    """A layer of a lowered network: the node that executes it, and the nodes of the float network that it replaces. A
    conversion has an empty pattern."""

    name: str
    pattern: str
    kernels: tuple[str, ...]
    node: str
    floating: tuple[str, ...]


def node_keys(graph: Graph) -> dict[str, str]:
    """What every node that calls something is known by, by its name. The same in a graph that was saved and loaded."""
    keys, counts = {}, Counter[str]()
    for node in graph.nodes:
        if node.op.startswith("call"):
            called = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
            kind = f"{node.op} {called}"
            counts[kind] += 1
            keys[node.name] = f"{kind} {counts[kind]}"
    return keys


def described(converted: Converted) -> list[DescribedLayer]:
    """Describe the layers of a converted network in order of execution. Raises NodeRaises if one cannot be executed."""
    execution = Execution(converted, {}, lambda node: None)
    execution.audit(converted.network.held_out)
    layers, floating = Layers(converted, execution.steps), _FloatNodes(converted)
    keys, names = node_keys(converted.lowered.graph), dict[Node, str]()
    found = []
    for step in execution.steps:
        layer = layers.layer(step)
        conversion = layer.arithmetic is Arithmetic.CONVERSION
        name = _conversion_name(step, names) if conversion else layer.name
        names[step.node] = name if name not in names.values() else f"{name} ({step.node.name})"
        pattern, replaced = ("", ()) if conversion else (layer.pattern, floating.taken(step))
        found.append(DescribedLayer(names[step.node], pattern, layer.kernels, keys[step.node.name], replaced))
    return found


def _conversion_name(step: Step, names: Mapping[Node, str]) -> str:
    """The name of a conversion: that of the layer or input whose output it converts, and what it calls."""
    called = (
        step.node.target if isinstance(step.node.target, str) else getattr(step.node.target, "__name__", step.node.name)
    )
    source = next(iter(step.node.all_input_nodes), None)
    return called if source is None else f"{names.get(source, source.name)}.{called}"


class _FloatNodes:
    """The nodes of the float network that layers replace, each counted for the first layer that has it."""

    def __init__(self, converted: Converted) -> None:
        self.members = converted.matches.members
        self.left = node_keys(converted.matches.traced[-1].graph)

    def taken(self, step: Step) -> tuple[str, ...]:
        own = [node.name for node in step.body] or [step.node.name]
        fused = [member for name in own for member in sorted(self.members.get(name, (name,)))]
        return tuple(self.left.pop(name) for name in dict.fromkeys(fused) if name in self.left)


def layer_times(
    layers: Iterable[DescribedLayer], lowered: GraphModule, traced: GraphModule, inputs: Sequence[Tensor]
) -> tuple[LayerTime, ...]:
    """Time the layers of a lowered network and of the traced float network. Use it within the scope of the engine."""
    timers = NodeTimer(lowered), NodeTimer(traced)
    with uncollected():
        passes, start = 0, perf_counter()
        # in turn, as the two models are timed: each finds the caches as the other has left them
        while passes < FEWEST or (passes < MOST and perf_counter() - start < SECONDS):
            for timer in timers:
                timer.run(*copied(inputs))
            passes += 1
    seconds, float_seconds = (_by_key(timer) for timer in timers)
    return tuple(
        LayerTime(
            layer.name,
            layer.pattern,
            layer.kernels,
            seconds.get(layer.node, 0.0),
            sum(float_seconds.get(node, 0.0) for node in layer.floating),
        )
        for layer in layers
    )


def _by_key(timer: NodeTimer) -> dict[str, float]:
    """The seconds of the nodes of a graph, by what they are known by."""
    keys = node_keys(timer.graph)
    return {key: timer.seconds[name] for name, key in keys.items()}
