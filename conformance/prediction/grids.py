"""The grids that the values of a network will be on, by their observers: before lowering, and after it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.ao.quantization import FixedQParamsObserver
from torch.ao.quantization.backend_config import ObservationType
from torch.fx import Node

from conformance.cases.recipes import RANGES

SHARES = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT

Range = tuple[float, float]


class Grids:
    """The observers of a network's values, and the ranges of what they saw.

    `lowered` has the observer whose grid a value will be on, where a kernel computes it: that of the operand for a kernel
    that keeps it, and for a module the one of its last call.
    """

    def __init__(self, observers: Mapping[Node, nn.Module], entries: Mapping[str, Any]) -> None:
        self.observers, self.entries = observers, entries
        self.ranges: dict[nn.Module, Range] = {}
        self.values: dict[Node, Range] = {}
        self.lowered: dict[Node, nn.Module] = {}
        self.last_calls: dict[Any, Node] = {}
        self.beyond: dict[Node, float] = {}
        self.computed = set[Node]()  # results of operators with a number, to which kernels give a grid of their own

    def calibrate(self, observer: Node, value: Tensor) -> None:
        """Widen the range of an observer by what it takes."""
        module, seen = self.observers[observer], _range(value)
        low, high = self.ranges.get(module, (0.0, 0.0))
        self.ranges[module] = min(low, seen[0]), max(high, seen[1])

    def see(self, observer: Node, source: Node, value: Tensor) -> None:
        """Take the range of an observed value of the batch that is held out."""
        module = self.observers[observer]
        self.values[source] = _range(value)
        if isinstance(module, FixedQParamsObserver) and value.numel():
            low, high = ((end - float(module.zero_point)) * float(module.scale) for end in RANGES[module.dtype])
            step = float(module.scale)
            outside = (value < low - 1.02 * step) | (value > high + 1.02 * step)
            self.beyond[source] = float(outside.float().mean())

    def own(self, node: Node) -> nn.Module | None:
        """The observer of a node's value."""
        return next((self.observers[user] for user in node.users if user in self.observers), None)

    def keep(self, core: Node, last: Node, *, keeps: bool) -> None:
        """Record the grid of a layer that a kernel computes, or one of whose calls decides it."""
        own = self.own(last)
        if core.op == "call_module" and not keeps:
            self.last_calls[core.target] = last
        first = next((one for one in core.all_input_nodes if one in self.observers), None)
        if keeps and first is not None:
            source = first.all_input_nodes[0]
            own = self.lowered.get(source, self.observers[first])
        if self._computes_with_number(core):
            own = nn.Identity()  # no observer's: the kernel multiplies the scale, or moves the zero point
        if own is not None:
            self.lowered[last] = own

    def _computes_with_number(self, node: Node) -> bool:
        """Whether a node adds or multiplies a tensor and a number, which the config gives one observer."""
        by_count = getattr(self.entries.get(node.name), "_num_tensor_args_to_observation_type", {})
        return by_count.get(sum(isinstance(one, Node) for one in node.args)) is SHARES

    def features(self, core: Node, last: Node) -> Iterator[tuple[str, str]]:
        """Yield what distinguishes a layer by its grid."""
        own, lowered = self.own(last), self.lowered.get(last)
        if core.op == "call_module" and core.target in self.last_calls:
            lowered = self.own(self.last_calls[core.target])
        if own is not None and lowered is not None and own is not lowered:
            yield "grid", "other"
            widths = [_width(self.ranges.get(one, (0.0, 0.0))) for one in (lowered, own)]
            if all(widths):
                yield "grid_ratio", f"{widths[0] / widths[1]:.6g}"
                yield "grid_clips", str(self._clips(lowered, self.values.get(last, (0.0, 0.0))))
        if own is not None and (scale := self._scale(own)):
            taken = [self._scale(self.observers[one]) for one in core.all_input_nodes if one in self.observers]
            yield "scale", f"{scale:.6g}"
            if taken and all(taken):
                yield "greatest_scale_ratio", f"{max(taken) / scale:.6g}"
                yield "least_scale_ratio", f"{min(taken) / scale:.6g}"
        if isinstance(own, FixedQParamsObserver):
            yield "fixed_range", "True"
        if last in self.beyond and last not in self.computed:
            yield "beyond_fixed_range", f"{self.beyond[last]:.6g}"

    def _scale(self, observer: Any) -> float:
        """The scale of a grid, 0 if no range is known."""
        if isinstance(observer, FixedQParamsObserver):
            return float(observer.scale)
        codes = getattr(observer, "quant_max", 0) - getattr(observer, "quant_min", 0)
        return _width(self.ranges.get(observer, (0.0, 0.0))) / codes if codes else 0.0

    def _clips(self, observer: Any, seen: Range) -> bool:
        """Whether values of a range are beyond the codes of a grid, by more than a fifth of what these reach."""
        low, high = self.ranges[observer]
        scale = (high - low) / (observer.quant_max - observer.quant_min)
        zero_point = observer.quant_min - round(low / scale)
        first, last = ((end - zero_point) * scale for end in RANGES[observer.dtype])
        return bool(min(seen[0] - 1.2 * first, 1.2 * last - seen[1]) < -scale)

    def shared(self) -> dict[Node, tuple[Node, ...]]:
        """By a value those that have its observer, of operands and results of operators that compute with a number: the
        config gives these one observer, although their ranges differ."""
        together: dict[nn.Module, dict[Node, None]] = {}
        for node in {user for one in self.observers for user in one.users}:
            for one in node.args if self._computes_with_number(node) else ():
                behind = [self.observers[user] for user in node.users if user in self.observers]
                if isinstance(one, Node) and self.observers.get(one) in behind:
                    self.computed.add(node)
                    together.setdefault(self.observers[one], {}).update({one.all_input_nodes[0]: None, node: None})
        return {
            one: tuple(other for other in nodes if other is not one) for nodes in together.values() for one in nodes
        }

    def sharing(self, shared: Mapping[Node, Sequence[Node]], last: Node) -> Iterator[tuple[str, str]]:
        """Yield how many times as wide the widest value is that shares the range of this one."""
        if last in shared and last not in self.computed and not isinstance(self.own(last), FixedQParamsObserver):
            own = _width(self.values.get(last, (0.0, 0.0)))
            widest = max((_width(self.values.get(one, (0.0, 0.0))) for one in shared[last]), default=0.0)
            yield "shares_range", "True"
            if own and widest:
                yield "shared_range_ratio", f"{widest / own:.6g}"


def _range(value: Tensor) -> Range:
    if not value.numel():
        return 0.0, 0.0
    low, high = value.aminmax()
    return min(float(low), 0.0), max(float(high), 0.0)


def _width(seen: Range) -> float:
    width = seen[1] - seen[0]
    return width if math.isfinite(width) else 0.0
