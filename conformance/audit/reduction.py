"""From a blamed layer to the least model that still shows what it is blamed for."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from conformance.host.isolation import Death, Done, run_isolated
from conformance.results.audits import Layer, Reduction

from .options import NotSource
from .parts import Cutter, Part, smaller, smallest_first

CANDIDATE_SECONDS = 20.0
"""CPU seconds that a candidate may take before it counts as hanging."""

MOST_CANDIDATES = 80
"""Candidates that are tried for a layer."""


@dataclass(frozen=True)
class Blamed:
    """A blamed layer with the names of its nodes in the float network, or of those that take its result."""

    layer: Layer
    nodes: tuple[str, ...]

    @property
    def kind(self) -> tuple[object, ...]:
        """What layers have in common of which one reduction speaks: the pattern, the kernels and the checks that fail."""
        checks = tuple(sorted({fault.check for fault in self.layer.faults}))
        return self.layer.pattern, self.layer.kernels, checks


Write = Callable[[Part, str, bool], str]
"""Writes the script of a part, with a title: of what its reference model computes, or of what the engine does."""


def reductions(cutter: Cutter, write: Write, where: str, blamed: Sequence[Blamed]) -> tuple[Reduction, ...]:
    """Reduce one layer, that with the least data, of each kind among the blamed ones. `where` names the network and the
    engine."""
    by_kind: dict[tuple[object, ...], Blamed] = {}
    shown_by_values = [one for one in blamed if any(fault.check != "asked" for fault in one.layer.faults)]
    for one in sorted(shown_by_values, key=lambda one: math.prod(one.layer.shape)):
        by_kind.setdefault(one.kind, one)
    return tuple(_Search(cutter, write, where, one).reduction() for one in by_kind.values())


class _Search:
    """The search for the least part that shows what a layer is blamed for."""

    def __init__(self, cutter: Cutter, write: Write, where: str, blamed: Blamed) -> None:
        self.cutter, self.write, self.blamed = cutter, write, blamed
        self.tried = 0
        self.checks = {fault.check for fault in blamed.layer.faults}
        self.title = f"{blamed.layer.name} of {where}: {blamed.layer.faults[0].text}"

    def reduction(self) -> Reduction:
        name, reasons = self.blamed.layer.name, []
        if "hooks" in self.blamed.layer.features:
            return Reduction(name, "it has forward hooks, which no script of its modules has")
        for company, part in self._parts():
            if isinstance(part, NotSource):
                reasons.append(str(part))
                continue
            shown = next((one for one in smallest_first(part) if self._shows(one)), None)
            if shown is not None:
                least = self._least(shown)
                text = (
                    f"shown by {'the layer alone' if not company else 'the layer in company of ' + ', '.join(company)}"
                )
                return Reduction(name, f"{text}, with inputs of shape {_shapes(least)}", company, self._script(least))
        reason = (
            reasons[-1] if reasons else "neither the layer nor its neighbours show it with other weights and inputs"
        )
        return Reduction(name, reason)

    def _parts(self) -> Iterator[tuple[tuple[str, ...], Part | NotSource]]:
        """Parts of the network around the layer, the smallest first, each with the neighbours in it."""
        alone = self.cutter.group(self.blamed.nodes)
        before = self.cutter.producers(alone)
        after = self.cutter.consumers(alone)
        around = self.cutter.producers(after)
        further = self.cutter.consumers(self.cutter.producers(around))
        seen: list[list[Node]] = []
        for nodes in (alone, before, after, around, further):
            if not nodes or nodes in seen:
                continue
            seen.append(nodes)
            company = tuple(node.name for node in nodes if node not in alone)
            for last in (False, True):
                try:
                    part: Part | NotSource = self.cutter.part(nodes, last)
                except NotSource as error:
                    part = error
                yield (*company, *(["channels-last inputs"] if last else [])), part

    def _script(self, part: Part) -> str:
        return self.write(part, self.title, self.checks == {"reference"})

    def _shows(self, part: Part) -> bool:
        """Whether the script of a part deviates in a check that the layer fails, in a process of its own."""
        try:
            source = self._script(part)
        except NotSource:
            return False
        self.tried += 1
        if self.tried > MOST_CANDIDATES:
            return False
        (outcome,) = run_isolated([source], _deviation, CANDIDATE_SECONDS)
        if isinstance(outcome, Death):
            return "crashes" in self.checks
        if not isinstance(outcome, Done) or not outcome.value:
            return False
        found = "numerics" if self.checks & {"numerics", "stable"} else "lowered"
        return outcome.value.startswith("reference" if self.checks == {"reference"} else found)

    def _least(self, part: Part) -> Part:
        """The part, made smaller as long as it shows the same."""
        while (simpler := next((one for one in smaller(part) if self._shows(one)), None)) is not None:
            part = simpler
        return part


def _deviation(source: str) -> str:
    """What the function `deviation` of a script returns; empty if the script raises."""
    scope: dict[str, Any] = {"__name__": "reduction"}
    try:
        exec(source, scope)
        found: str = scope["deviation"]()
    except Exception:  # a part that was cut too small cannot be called
        return ""
    return found


def _shapes(part: Part) -> str:
    return ", ".join("×".join(map(str, shape)) for shape in part.shapes)
