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
            kind = f"{node.op} {_called(node, str(node.target))}"
            counts[kind] += 1
            keys[node.name] = f"{kind} {counts[kind]}"
    return keys


def _called(node: Node, unnamed: str) -> str:
    """The name of what a node calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", unnamed)


def described(converted: Converted) -> list[DescribedLayer]:
    """Describe the layers of a converted network in order of execution. Raises NodeRaises if one cannot be executed."""
    execution = Execution(converted, {}, lambda node: None)
    execution.audit(converted.network.held_out)
    layers, members = Layers(converted, execution.steps), converted.matches.members
    keys, names = node_keys(converted.lowered.graph), dict[Node, str]()
    # nodes of the float network; each counts for the first layer that replaces it
    left = node_keys(converted.matches.traced[-1].graph)
    found = []
    for step in execution.steps:
        layer = layers.layer(step)
        conversion = layer.arithmetic is Arithmetic.CONVERSION
        name = _conversion_name(step, names) if conversion else layer.name
        names[step.node] = name if name not in names.values() else f"{name} ({step.node.name})"
        own = [] if conversion else [node.name for node in step.body] or [step.node.name]
        fused = dict.fromkeys(member for name in own for member in sorted(members.get(name, (name,))))
        replaced = tuple(left.pop(name) for name in fused if name in left)
        pattern = "" if conversion else layer.pattern
        found.append(DescribedLayer(names[step.node], pattern, layer.kernels, keys[step.node.name], replaced))
    return found


def _conversion_name(step: Step, names: Mapping[Node, str]) -> str:
    """The name of a conversion: that of the layer or input whose output it converts, and what it calls."""
    called = _called(step.node, step.node.name)
    source = next(iter(step.node.all_input_nodes), None)
    return called if source is None else f"{names.get(source, source.name)}.{called}"


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
    # by what the nodes are known by, which is the same in the graph that was described
    seconds, float_seconds = (
        {key: timer.seconds[name] for name, key in node_keys(timer.graph).items()} for timer in timers
    )
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
