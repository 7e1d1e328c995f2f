"""Calibration: the qparams of activations that observers compute from the calibration data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from .arithmetic import Qparams, extremes, power_of_two_qparams, quantize
from .graph import Graph, Group, value_of
from .interpreter import Interpreter
from .scheme import Grid


@dataclass(eq=False)
class _Observer:
    """A min-max observer: the least and greatest value of all tensors that it observed."""

    grid: Grid
    low: Tensor
    high: Tensor

    def update(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = torch.minimum(self.low, low), torch.maximum(self.high, high)

    @property
    def qparams(self) -> Qparams:
        return power_of_two_qparams(self.low, self.high, self.grid)


class _Calibration:
    """One pass over the calibration data with an observer for each quantized activation.

    Without `scheme.qat`, observers see the values of the float model. With it, a fake-quantize follows each observer, so
    that later observers see quantized values.
    """

    def __init__(self, graph: Graph, calibration: Sequence[Tensor]) -> None:
        self.graph, self.qat = graph, graph.scheme.qat
        self.interpreter = Interpreter(graph, {}, None)
        self.interpreter.float_weights = not self.qat
        self.interpreter.set_inputs(calibration)
        self.observers: dict[fx.Node, _Observer] = {}

    def run(self) -> dict[fx.Node, Qparams]:
        values = self.interpreter.values
        for group in self.graph.groups:
            inputs = {node: self._observed_input(node) for node in group.inputs}
            observed = [node for node in group.inputs if node in self.observers]
            if self.graph.shares_qparams(group) and observed:
                self._share_observer(group, observed)
            result, _ = self.interpreter.evaluate(group, cloned(inputs))
            observes = not self.graph.has_float_result(group)
            values[group.result] = self._observe(group.result, result, self.graph.grid(group)) if observes else result
        return {node: observer.qparams for node, observer in self.observers.items()}

    def _observed_input(self, node: fx.Node) -> Any:
        """The value of a group's input. The first group that reads a float input observes it."""
        value = value_of(self.interpreter.values, node)
        floating = isinstance(value, Tensor) and value.is_floating_point()
        if not floating or node in self.observers or self.graph.stays_float(node):
            return value
        return self._observe(node, value, self.graph.grid(None))

    def _observe(self, node: fx.Node, values: Tensor, grid: Grid) -> Tensor:
        ends = extremes(values, grid)
        if node in self.observers:
            self.observers[node].update(*ends)
        else:
            self.observers[node] = _Observer(grid, *ends)
        return quantize(values, self.observers[node].qparams, simulated=True).dequantized() if self.qat else values

    def _share_observer(self, group: Group, observed: Sequence[fx.Node]) -> None:
        """Merge the observers of a group's inputs into one, which observes the group's output too."""
        shared = self.observers[observed[0]]
        merged = {id(self.observers[node]): self.observers[node] for node in observed[1:]}
        for other in merged.values():
            shared.update(other.low, other.high)
            self.observers |= {node: shared for node, observer in self.observers.items() if observer is other}
        self.observers[group.result] = shared


def calibrate(graph: Graph, calibration: Sequence[Tensor]) -> dict[fx.Node, Qparams]:
    """Return the qparams of each activation that is quantized, by the node that computes it.

    Raises ValueError if the calibration data hold an empty tensor.
    """
    return _Calibration(graph, calibration).run()


def cloned(values: Mapping[fx.Node, Any]) -> dict[fx.Node, Any]:
    """Copies of all tensors, because in-place operators write to their inputs."""
    return {node: value.clone() if isinstance(value, Tensor) else value for node, value in values.items()}
