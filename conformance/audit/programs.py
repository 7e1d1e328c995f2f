"""Audits through PT2E: the network as one program of an engine, and as one program for each of its regions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from conformance.cases.claims import BackendClaims
from conformance.engines.decomposed import returned
from conformance.engines.protocol import Engine
from conformance.errors import Failure
from conformance.host.isolation import Death, Done, run_isolated
from conformance.models import pt2e
from conformance.results.audits import LOST_DB, Audit, Fault, Layer, Reduction
from conformance.results.findings import Finding
from conformance.results.findings.layers import LayersDiffer, LayersRaise

from .agreement import decibels, joined
from .exported import Exported
from .isolated import Stage
from .network import tensors_of
from .parts import Cutter
from .piece_layers import PieceLayers
from .pieces import Piece, Pieces
from .reduction import CANDIDATE_SECONDS, Blamed, Write, reductions
from .regions import Cut
from .stability import tied_db
from .whole import Whole

WHOLE = "the whole program"
"""What a child that dies in it has entered."""


class Programs:
    """Audits an exported network on an engine. `crashed` says how the engine ended earlier processes, by what it was in, and
    `write` writes the script of a part; blamed layers are not reduced without one."""

    def __init__(
        self,
        exported: Exported,
        engine: Engine,
        claims: BackendClaims | None,
        crashed: Mapping[str, str],
        entered: Callable[[str], object],
        stage: Stage,
        write: Write | None = None,
    ) -> None:
        self.exported, self.engine, self.crashed = exported, engine, crashed
        self.entered, self.stage, self.write = entered, stage, write
        self.layers = PieceLayers(exported, claims, engine)
        self.pieces = Pieces(exported, engine, crashed, entered)

    def audit(self, result: Audit, made: Callable[[], Any] | None = None) -> Audit:
        """Fill in the layers and the figures of a network. `made` loads the whole program, which else is lowered here."""
        pieces = self.pieces.run(lambda number, total: self.stage(f"execute layer {number} of {total}"))
        layers = [self.layers.layer(piece) for piece in pieces]
        reduced = self._reductions(result, pieces, layers)
        result = replace(result, refusals=self.layers.refusals, reductions=reduced)
        self.entered(WHOLE)
        self.stage("execute the whole program")
        try:
            if reason := self.crashed.get(WHOLE):
                raise RuntimeError(f"the process dies ({reason})")
            program = made() if made else self.engine.compile(self.exported.converted, self.exported.held_out)
            whole = Whole.executed(self.engine, program, self.exported.network)
        except Exception as error:
            layers = self._raising(pieces, layers, error)
            failure = f"the whole program raises {Failure.of(error).text}"
            return replace(result, layers=tuple(layers), failure=failure, stage="execute", advice=self._advice(layers))
        self.stage("measure")
        return self._compared(whole.measured(replace(result, layers=tuple(layers))), whole, pieces)

    def _reductions(self, result: Audit, pieces: Sequence[Piece], layers: Sequence[Layer]) -> tuple[Reduction, ...]:
        """Reductions of the layers that are blamed alone."""
        pairs = zip(layers, pieces, strict=True)
        blamed = [
            Blamed(layer, tuple(node.name for node in piece.region.nodes)) for layer, piece in pairs if layer.blamed
        ]
        if self.write is None or not blamed:
            return ()
        self.stage(f"reduce {len(blamed)} blamed layers")
        cutter = Cutter(self.exported.in_float, self.exported.members, self.exported.float_values)
        return reductions(cutter, self.write, f"{result.network} on {result.engine}", blamed)

    def _compared(self, result: Audit, whole: Whole, pieces: Sequence[Piece]) -> Audit:
        """The whole network beside its reference, and the least part that is wrong as one program, if the whole is."""
        with torch.no_grad():
            reference = tensors_of(self.exported.converted(*self.exported.held_out))
        got, exact = joined(whole.outputs), joined(whole.in_float)
        chained = joined([self._chained(*one) for one in zip(self._returned(), reference, strict=True)])
        compared = replace(
            result,
            reference_db=decibels(joined(reference), exact),
            agreement_db=decibels(got, joined(reference)),
        )
        if compared.loses:
            compared = replace(compared, tied_db=tied_db(self.exported.converted, self.exported.held_out, exact))
        off, alone = decibels(got, chained), decibels(chained, exact)
        if off is not None and (alone is None or off < alone - LOST_DB) and not any(p.replaced for p in pieces):
            compared = replace(compared, layers=tuple(self._differing(pieces, compared.layers, off)))
        return compared

    def _returned(self) -> list[Node]:
        return [node for node in returned(self.exported.converted) if isinstance(node, Node)]

    def _chained(self, node: Node, reference: Tensor) -> Tensor:
        """The value of an output as the regions have given it one by one; the reference's of a constant."""
        if node in self.exported.regions.constant:
            return reference
        source = node.args[0] if self.exported.regions.dequantizes(node) else node
        value: Tensor = self.pieces.given(source)  # type: ignore[arg-type]
        return value

    def _differing(self, pieces: Sequence[Piece], layers: Sequence[Layer], whole_db: float) -> list[Layer]:
        """The layers, with the least part that is wrong as one program blamed at its end."""

        def wrong(part: Sequence[Piece]) -> float | None:
            cut = self.exported.regions.cut([piece.region for piece in part])
            try:
                got = [one.values for one in self.pieces.execute(cut).outputs]
            except Exception:
                return None
            alone = joined([self.pieces.given(node) for node in cut.outputs])
            full = [self._full(node) for node in cut.outputs]
            off = decibels(joined(got), alone)
            if off is None or any(one is None for one in full):
                return None
            own = decibels(alone, joined(full))
            return off if own is None or off < own - LOST_DB else None

        first, last, db = self._least(pieces, wrong, whole_db)
        names = tuple(layer.name for layer in layers[first:last])
        return _blaming(layers, last - 1, LayersDiffer("numerics", names, db))

    def _full(self, node: Node) -> Any:
        same_node = self.exported.equivalents.get(self.exported.regions.source(node).name)
        return None if same_node is None else self.exported.float_values.get(same_node)

    def _raising(self, pieces: Sequence[Piece], layers: Sequence[Layer], error: Exception) -> list[Layer]:
        """The layers, with the least part that raises as one program blamed at its end, unless a layer raises alone."""
        if any(piece.replaced for piece in pieces):
            return [*layers]

        def tried(cut: Cut) -> Failure | None:
            try:
                self.pieces.execute(cut)
            except Exception as error:
                return Failure.of(error)
            return None

        def raised(part: Sequence[Piece]) -> Failure | None:
            cut = self.exported.regions.cut([piece.region for piece in part])
            if WHOLE not in self.crashed:
                return tried(cut)
            (outcome,) = run_isolated([cut], tried, CANDIDATE_SECONDS)
            if isinstance(outcome, Death):
                return Failure("Death", outcome.reason)
            return outcome.value if isinstance(outcome, Done) else None

        first, last, failure = self._least(pieces, raised, Failure.of(error))
        names = tuple(layer.name for layer in layers[first:last])
        return _blaming(layers, last - 1, LayersRaise("lowered", names, failure.exception, failure.message))

    def _least(
        self, pieces: Sequence[Piece], shows: Callable[[Sequence[Piece]], Any], whole: Any
    ) -> tuple[int, int, Any]:
        """The first and the last layer of the least part, consecutive in the network, that shows something, and what it
        shows: parts are halved, then shortened at both ends as long as they show it."""
        first, last, found = 0, len(pieces), whole
        size = (last - first) // 2
        while size:
            self.stage(f"cut {last - first} layers")
            for one, other in ((first, last - size), (first + size, last)):
                if other - one >= 1 and (shown := shows(pieces[one:other])) is not None:
                    first, last, found = one, other, shown
                    break
            else:
                size //= 2
            size = min(size, (last - first) // 2)
        return first, last, found

    def _advice(self, layers: Sequence[Layer]) -> str:
        """What can be done about blamed layers that are annotated; those that are not are in float already."""
        annotated = [layer for layer in layers if layer.features.get("annotated") == "True"]
        blamed = ", ".join(layer.name for layer in annotated if layer.blamed)
        leaves = pt2e.spec_of(self.layers.claims).leaving if self.layers.claims else ""
        by = f": {leaves} of the quantizer for each name" if leaves else ", which the quantizer has to be told"
        return f"leave {blamed} in float{by}" if blamed else ""


def _blaming(layers: Sequence[Layer], number: int, finding: Finding) -> list[Layer]:
    blamed = replace(layers[number], faults=(*layers[number].faults, Fault(finding)))
    return [*layers[:number], blamed, *layers[number + 1 :]]
