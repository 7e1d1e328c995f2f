"""One execution of a lowered network, node by node, with the reference's value of each node for the same inputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from conformance.errors import Failure
from conformance.models.trace import Kernel, Recorder

from .agreement import decibels
from .conversion import Converted
from .network import Batch, copied
from .origins import Origin, Origins, Part
from .values import ListsAsLists, NodeRaises, frozen, memory, memory_format, unchanged


@dataclass(frozen=True)
class Step:
    """The execution of one node: its value as the engine wrote it, and the reference's for the same inputs.

    `position` is the reference's value on the grid of its codes before it was rounded (float64, in steps), None unless the
    reference quantizes here. `full` is the float network's own value, `in_float` its node, and `origin` what the layer has in
    float. `body` are the reference nodes that compute the value from the inputs of the layer. `overwritten` are the operands
    that the kernel changed, each with the SQNR in dB of what is left, although they are used again, `error` is what the
    kernel raised, `crash` how it ended an earlier process, `inputs` what it got, `formats` their memory formats, and
    `aliased` is true where two of its operands are in the same memory.
    """

    node: Node
    value: Any
    local: Any = None
    position: Tensor | None = None
    full: Any = None
    origin: Origin | None = None
    body: tuple[Node, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    overwritten: tuple[tuple[Node, float | None], ...] = ()
    in_float: Node | None = None
    error: Failure | None = None
    crash: str = ""
    inputs: tuple[Any, ...] = ()
    formats: tuple[str, ...] = ()
    aliased: bool = False

    @property
    def replaced(self) -> bool:
        """Whether the value is the reference's, because the kernel raises or ends the process."""
        return self.error is not None or bool(self.crash)


class Execution(ListsAsLists):
    """Runs a lowered network, and for each node the reference from the same inputs.

    A node in `replaced`, and one that raises, gets the reference's value, so that the rest can be audited. `entered` is
    called with each node before it runs: a process that dies has died in the last one.
    """

    def __init__(self, converted: Converted, replaced: Mapping[str, str], entered: Callable[[Node], object]) -> None:
        super().__init__(converted.lowered)
        self.converted, self.replaced, self.entered = converted, replaced, entered
        self.steps: list[Step] = []
        self._copies: dict[Node, Any] = {}
        self._known: dict[Node, Any] = {}
        self._part = Part(converted.reference)
        self._origins = Origins(converted)
        self.last = {used: node for node in converted.lowered.graph.nodes for used in node.all_input_nodes}

    def audit(self, batch: Batch) -> Any:
        """Run the lowered network on a batch and return its output. Raises NodeRaises for a node that the reference lacks."""
        with torch.no_grad():
            return self.run(*copied(batch))

    def run_node(self, n: Node) -> Any:
        same = self.converted.equivalents.get(n)
        if n.op in ("placeholder", "get_attr", "output"):
            result = super().run_node(n)
            self._take(n, same, result)
            return result
        inputs = tuple(self._copies.get(node) for node in n.all_input_nodes)
        formats = tuple(memory_format(self.env[node]) for node in n.all_input_nodes)
        addresses = [own for one in n.args if isinstance(one, Node) and (own := memory(self.env[one]))]
        local, position, body, origin = self._reference(same)
        self.entered(n)
        recorder, error, crash = Recorder(), None, self.replaced.get(n.name, "")
        try:
            if crash:
                result = frozen(self._instead(same, local))
            else:
                with recorder:
                    result = super().run_node(n)
        except Exception as raised:
            if local is None and same not in self.converted.reference_values:
                raise NodeRaises(n, raised) from raised
            result, error = frozen(self._instead(same, local)), Failure.of(raised)
        value = self._take(n, same, result)
        overwritten = self._overwritten(n)
        self.steps.append(
            Step(
                n, value, local, position, self._origins.own(same) if same else None, origin, body,
                tuple(recorder.kernels), overwritten, self._origins.node(same) if same else None, error, crash, inputs,
                formats, len({*addresses}) < len(addresses),
            )
        )  # fmt: skip
        return result

    def _instead(self, same: Node | None, local: Any) -> Any:
        """The reference's value in place of one that a kernel cannot compute."""
        return self.converted.reference_values.get(same) if local is None and same is not None else local

    def _take(self, node: Node, same: Node | None, result: Any) -> Any:
        value = self._copies[node] = frozen(result)
        if (
            same is not None and node.op != "get_attr"
        ):  # lowering replaces modules, and with them what an attribute holds
            self._known[same] = self._of_its_kind(same, value)
            self._origins.take(same, value)
        return value

    def _of_its_kind(self, same: Node, value: Any) -> Any:
        """A value as the reference's nodes take it: in float where the reference's own is, although a kernel left it
        quantized."""
        full = self.converted.reference_values.get(same)
        if not isinstance(value, Tensor) or not isinstance(full, Tensor):
            return value
        return value.dequantize() if value.is_quantized and not full.is_quantized else value

    def _reference(self, same: Node | None) -> tuple[Any, Tensor | None, tuple[Node, ...], Origin | None]:
        """The reference's value of a node from the engine's inputs, its position on the grid, the nodes that compute it, and
        what the layer has in float."""
        if same is None:
            return None, None, (), None
        try:
            values, body = self._part.evaluate(same, self._known)
        except Exception:  # for example because the engine gives codes where the reference expects floats
            return None, None, (same,), None
        position = None
        if same.target is torch.quantize_per_tensor:
            x, scale, zero_point = (
                values.get(part, part) if isinstance(part, Node) else part for part in same.args[:3]
            )
            if isinstance(x, Tensor):
                position = x.double() / float(scale) + float(zero_point)  # type: ignore[arg-type]
        try:
            origin = self._origins.origin(same, values, body)
        except Exception:  # for example because the network asks for a property of what a layer has replaced
            origin = None
        return values[same], position, body, origin

    def _overwritten(self, node: Node) -> tuple[tuple[Node, float | None], ...]:
        """The operands that have other values now and are used again, themselves or as another view of their memory."""
        changed = []
        for operand in node.all_input_nodes:
            if operand in self._copies and not unchanged(self.env.get(operand), self._copies[operand]):
                own, before = memory(self.env[operand]), self._copies[operand]
                views = [other for other, value in self.env.items() if memory(value) == own]
                used = [view for view in views if self.last.get(view) is not node]
                for view in used:
                    self._take(view, self.converted.equivalents.get(view), self.env[view])
                if used:
                    changed.append((operand, decibels(frozen(self.env[operand]), before)))
        return tuple(changed)
