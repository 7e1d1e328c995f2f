"""One execution of a converted network on an engine, region by region: each is a program of its own, given the same inputs as
the reference."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from conformance.engines.decomposed import is_dequantize, quantized
from conformance.engines.protocol import Engine
from conformance.errors import Failure
from conformance.host.isolation import Death, run_isolated
from conformance.models.trace import Execution, Kernel

from .exported import Exported, norms
from .origins import Part
from .reduction import CANDIDATE_SECONDS
from .regions import Cut, Region
from .values import Recorded, frozen, memory_format


@dataclass(frozen=True)
class Value:
    """A value that a region returns: on the engine, in the reference, and what the same operators have in float.

    Codes are quantized tensors. `position` is the reference's value on the grid of its codes before it was rounded (float64,
    in steps), None for a value in float. `unfused` is that of the prepared network, which differs from `truth` by what
    preparing changes, `full` the float network's own value.
    """

    node: Node
    value: Tensor
    local: Tensor
    position: Tensor | None = None
    truth: Tensor | None = None
    unfused: Tensor | None = None
    full: Tensor | None = None


@dataclass(frozen=True)
class Piece:
    """The execution of a region: the values that it returns, the kernels that ran, what the engine raised in `stage`, and how
    it ended an earlier process. `inputs` are the values that the region took, `formats` their memory formats, `scale` is the
    scale of the first one on a grid, and `weight` the region's quantized constant."""

    region: Region
    cut: Cut
    values: tuple[Value, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    error: Failure | None = None
    stage: str = ""
    crash: str = ""
    inputs: tuple[Any, ...] = ()
    formats: tuple[str, ...] = ()
    scale: float | None = None
    weight: Tensor | None = None

    @property
    def failed(self) -> bool:
        """Whether the engine raises or ends the process, so that there are no values of its own."""
        return self.error is not None or bool(self.crash)

    @property
    def replaced(self) -> bool:
        """Whether the regions behind this one take a value of the reference, because the engine has none of its shape."""
        return self.failed or any(one.value.shape != one.local.shape for one in self.values)


class Pieces:
    """Executes the regions of a network on an engine, each with what the engine has given those before it.

    A region in `crashed`, one with its operator that ends a child, one that raises, and one that gives another shape, gets
    the reference's values, so that the rest can be audited. `entered` is called with the name of each region before it
    runs: a process that dies has died in the last one.
    """

    def __init__(
        self, exported: Exported, engine: Engine, crashed: Mapping[str, str], entered: Callable[[str], object]
    ) -> None:
        self.exported, self.engine, self.crashed, self.entered = exported, engine, crashed, entered
        self.regions = exported.regions
        self.values: dict[Node, Any] = dict(zip(self._placeholders(), exported.held_out, strict=True))
        self._float = Part(exported.in_float)
        self._prepared = Part(exported.prepared)

    def _placeholders(self) -> list[Node]:
        return [node for node in self.exported.converted.graph.nodes if node.op == "placeholder"]

    def run(self, progress: Callable[[int, int], object]) -> list[Piece]:
        """Execute all regions whose values are used, and call `progress` with the number of each and of all."""
        cuts = [(region, self.regions.cut([region])) for region in self.regions.all]
        used = [(region, cut) for region, cut in cuts if cut.outputs]
        found = []
        with torch.no_grad():
            for number, (region, cut) in enumerate(used, 1):
                progress(number, len(used))
                found.append(self._piece(region, cut))
        return found

    def given(self, node: Node) -> Any:
        """A copy of the value that a part takes for a node: of a quantize call, the codes in float."""
        known = (
            node if node in self.values else self.regions.source(node)
        )  # an input of the network, before it is quantized
        return frozen(self.values[known])

    def execute(self, cut: Cut) -> Execution:
        """Execute a part on the engine as one program. Raises the exceptions of the engine."""
        inputs = [self.given(node) for node in cut.inputs]
        program = self.engine.compile(cut.model, inputs)
        return self.engine.execute(program, [frozen(x) for x in inputs])

    def _piece(self, region: Region, cut: Cut) -> Piece:
        inputs = tuple(self.given(node) for node in cut.inputs)
        reference = Recorded(cut.model)
        local = reference.run(*map(frozen, inputs))
        formats = tuple(map(memory_format, inputs))
        crash = self.crashed.get(region.name, "") or self._ends(region, cut)
        grids = [node.args[1] for node in cut.inputs if self.regions.quantizes(node)]
        scale = next((one for one in grids if isinstance(one, float)), None)
        weight = self._weight(cut, reference.values)
        piece = Piece(region, cut, inputs=inputs, formats=formats, crash=crash, scale=scale, weight=weight)
        got: Sequence[Tensor] = local
        codes: Sequence[Tensor | None] = [None] * len(local)
        if not piece.crash:
            self.entered(region.name)
            at = "lower"
            try:
                program = self.engine.compile(cut.model, inputs)
                at = "execute"
                execution = self.engine.execute(program, [*map(frozen, inputs)])
                got, codes = zip(*((one.values, one.quantized) for one in execution.outputs), strict=True)
                piece = replace(piece, kernels=execution.kernels)
            except Exception as raised:
                got, codes = local, [None] * len(local)
                piece = replace(piece, error=Failure.of(raised), stage=at)
        values = []
        for number, node in enumerate(cut.outputs):
            result, on_grid = got[number], codes[number]
            # what comes after could not take another shape
            self.values[node] = result if result.shape == local[number].shape else local[number]
            values.append(self._value(node, piece, local[number], result, on_grid, reference.values))
        return replace(piece, values=tuple(values))

    @cached_property
    def _fatal(self) -> set[object]:
        """The first operators of regions that have ended a process."""
        return {region.head.target for region in self.regions.all if region.name in self.crashed}

    def _ends(self, region: Region, cut: Cut) -> str:
        """How a region ends a child, tried if another one with its operator has ended a process."""
        if region.head.target not in self._fatal:
            return ""

        def execute(part: Cut) -> None:
            with suppress(Exception):
                self.execute(part)

        (outcome,) = run_isolated([cut], execute, CANDIDATE_SECONDS)
        return outcome.reason if isinstance(outcome, Death) else ""

    def _weight(self, cut: Cut, values: Mapping[Node, Any]) -> Tensor | None:
        """The first constant of a part that is dequantized, as a quantized tensor."""
        for node, own in cut.own.items():
            if is_dequantize(node) and node in self.regions.constant:
                codes, *arguments = self._arguments(own, values)
                return quantized(codes, node.target, arguments)
        return None

    @staticmethod
    def _arguments(node: Node, values: Mapping[Node, Any]) -> list[Any]:
        """The arguments of a call with the values of nodes in their place."""
        return [values[one] if isinstance(one, Node) else one for one in node.args]

    def _value(
        self, node: Node, piece: Piece, local: Tensor, got: Tensor, codes: Tensor | None, reference: Mapping[Node, Any]
    ) -> Value:
        position, source = None, self.regions.source(node)
        if self.regions.quantizes(node):
            own = piece.cut.own[node]
            x, *arguments = self._arguments(own, reference)
            local = quantized(reference[own], node.target, arguments)
            if "per_channel" not in str(node.target):
                position = x.double() / float(arguments[0]) + float(arguments[1])
            got = local if piece.failed else got if codes is None else codes
        same = self.exported.equivalents.get(source.name)
        full = None if same is None else self.exported.float_values.get(same)
        truth = None if same is None else self._evaluated(self._float, same, piece, self._in_float)
        own_name = self._as_prepared(source)
        unfused = None if own_name is None else self._evaluated(self._prepared, own_name, piece, self._as_prepared)
        return Value(node, frozen(got), frozen(local), position, truth, unfused, full)

    def _in_float(self, node: Node) -> Node | None:
        return self.exported.equivalents.get(node.name) or self._float.nodes.get(node.name)

    def _as_prepared(self, node: Node) -> Node | None:
        same = self.exported.equivalents.get(node.name)
        return self._norms.get(same) or self._prepared.nodes.get(node.name) if same else None

    @cached_property
    def _norms(self) -> dict[Node, Node]:
        """The batch norm of the prepared network for each of the float one, if it has all: training fuses them under other
        names, in the order of the network."""
        own, prepared = map(norms, (self.exported.in_float, self.exported.prepared))
        return dict(zip(own, prepared, strict=True)) if len(own) == len(prepared) else {}

    def _evaluated(self, part: Part, target: Node, piece: Piece, same: Callable[[Node], Node | None]) -> Tensor | None:
        """The value of a node of another form of the network from the inputs that the region has got; None if it cannot be
        told."""
        known = {}
        for node, value in zip(piece.cut.inputs, piece.inputs, strict=True):
            if (own := same(self.regions.source(node))) is not None:
                known[own] = value
        try:
            found, _ = part.evaluate(target, known)
        except Exception:  # for example because preparing has rewritten what is before it
            return None
        value = found[target]
        return value if isinstance(value, Tensor) else None
