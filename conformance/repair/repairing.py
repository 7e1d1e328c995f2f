"""Repairs of a network: the remedies of what an engine is to blame for, each proved by an audit."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig
from torch.fx import GraphModule, Node, Tracer

from conformance.audit.agreement import as_tensor, decibels
from conformance.audit.auditing import Fx, Settings
from conformance.audit.causes import explained
from conformance.audit.conversion import LEAST_TRACED_DB
from conformance.audit.network import Network, copied, tensors_of
from conformance.errors import UsageError, brief
from conformance.results.audits import Audit, Layer
from conformance.results.known import Entry, Host

from .rewrites import REWRITES, InFloat, NotApplicable, narrowed, rewritten

FALLBACK = ("float",)
"""The remedies of a finding for which the ledger has none."""

SAME_DB = 0.1
"""How much an output has to gain, or may lose, before a step counts as one that helps, or harms."""

MOST_ROUNDS = 8
"""How often a network is audited to find out what helps."""


@dataclass(frozen=True)
class Step:
    """A rewriting of a node of the traced network, and the finding of the ledger that it is for, empty if that is new."""

    kind: str
    node: str
    cause: str = ""


@dataclass(frozen=True)
class Repair:
    """A network before and after its repair, and the steps that help."""

    subject: Network
    before: Audit
    after: Audit
    steps: tuple[Step, ...] = ()


class Repairing:
    """Repairs networks on an engine of torch, on this host, `on`. `progress` is called with a line for each stage."""

    def __init__(
        self, engine: str, entries: Sequence[Entry], on: Host, progress: Callable[[str], None] = lambda _: None
    ) -> None:
        self.engine, self.entries, self.on, self.progress = engine, entries, on, progress
        self.remedies = {entry.id: entry.finding.remedies for entry in entries}

    def repair(self, subject: Network, *, fallback: bool = True) -> Repair:
        """Try the remedies of each layer that is to blame, keep what helps, and leave out what is not needed.

        With `fallback`, layers that the ledger's remedies do not help, and those with new findings, are left in float.

        Nothing is kept by which the output is worse against the float model, or the network does not run any more. Raises
        UsageError for a network that FX cannot trace.
        """
        before = best = self._audited(subject)
        names = Names.of(self._rewritten(subject, ()))
        steps: dict[str, Step] = {}
        tried: set[tuple[str, str]] = set()
        for number in range(1, MOST_ROUNDS + 1):
            further: dict[str, Step] = {}
            offered = [*self._further(subject, best, names, tried)]
            in_integers = [step for step in offered if step.kind not in FALLBACK]
            for step in in_integers or (offered if fallback else ()):
                further.setdefault(step.node, step)
            if not further:
                break
            self.progress(f"{self.engine}: round {number}, {len(further)} remedies")
            tried |= {(step.kind, step.node) for step in further.values()}
            candidate = {**steps, **further}
            found = self._tried(subject, candidate.values())
            if found is not None and not harms(best, found[0]):
                steps, (best, names) = candidate, found
        if not helps(before, best):
            return Repair(subject, before, before)
        for cause in dict.fromkeys(step.cause for step in steps.values()):
            self.progress(f"{self.engine}: without what is for {cause or 'new findings'}")
            without = {node: step for node, step in steps.items() if step.cause != cause}
            found = self._tried(subject, without.values()) if without else (before, names)
            if found is not None and not harms(best, found[0]) and _counted(found[0]) <= _counted(best):
                steps, (best, _) = without, found
        return Repair(subject, before, best, tuple(steps.values()))

    def _further(self, subject: Network, audited: Audit, names: "Names", tried: set[tuple[str, str]]) -> Iterator[Step]:
        """Yield the next remedy that applies to each layer which is to blame or refused, for each finding."""
        blamed = [
            (name, fault.cause or "")
            for layer in audited.blamed
            for fault in layer.faults
            for name in _at_fault(layer, audited)
        ]
        refused = [(name, refusal.cause or "") for refusal in audited.refusals for name in refusal.layers]
        for name, cause in dict.fromkeys((*blamed, *refused)):
            for node in names.of_layer(name):
                kinds = (*self.remedies.get(cause, ()), *FALLBACK)
                steps = (Step(kind, node, cause) for kind in kinds if (kind, node) not in tried)
                yield from islice((step for step in steps if self._applies(subject, step)), 1)

    def _applies(self, subject: Network, step: Step) -> bool:
        try:
            rewritten(subject.model, [(REWRITES[step.kind], step.node)])
        except NotApplicable:
            return False
        return True

    def _rewritten(self, subject: Network, steps: Iterable[Step]) -> GraphModule:
        try:
            return rewritten(subject.model, [(REWRITES[step.kind], step.node) for step in steps])
        except NotApplicable:
            raise
        except Exception as error:
            raise UsageError(
                f"{subject.name} cannot be repaired, because FX cannot trace it: {brief(error)}"
            ) from error

    def _tried(self, subject: Network, steps: Iterable[Step]) -> "tuple[Audit, Names] | None":
        """The audit of a network with these steps, None if they change what it computes in float."""
        graph = self._rewritten(subject, steps)
        with torch.no_grad():
            own, other = (tensors_of(model(*copied(subject.held_out))) for model in (subject.model, graph))
        if len(own) != len(other) or not all(map(_same, own, other)):
            return None
        return self._audited(replace(subject, model=graph)), Names.of(graph)

    def _audited(self, subject: Network) -> Audit:
        custom = PrepareCustomConfig().set_non_traceable_module_classes([InFloat])
        mapping = narrowed(get_default_qconfig_mapping(self.engine), subject.model)
        way = Fx(self.engine, Settings(mapping, custom=custom, stable=False, reduce=False))
        return explained(way.audit(subject), self.entries, self.on)


@dataclass(frozen=True)
class Names:
    """The nodes of a traced network by the names that audits give its layers. Tracing it again names its nodes anew."""

    nodes: Mapping[str, str]
    targets: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, graph: GraphModule) -> "Names":
        """The names of a network that was rewritten."""
        again = _Tracer().trace(graph).nodes
        # tracing reads a parameter once, and computes at once what depends on constants alone
        constant = set[Node]()
        for node in graph.graph.nodes:
            if node.op.startswith("call_") and constant.issuperset(node.all_input_nodes):
                constant.add(node)
        calls = [node for node in graph.graph.nodes if node.op.startswith("call_") and node not in constant]
        called_again = [node for node in again if node.op.startswith("call_")]
        own = {new.name: old.name for new, old in zip(called_again, calls, strict=True)}
        called: dict[str, list[str]] = {}
        for node in again:
            if node.op == "call_module":
                called.setdefault(str(node.target), []).append(node.name)
        return cls(own, {target: tuple(own[name] for name in names) for target, names in called.items()})

    def of_layer(self, name: str) -> tuple[str, ...]:
        """The nodes of a layer: of `path` all calls of the module, of `path (node)` one, and of `path.node` a function; none
        for one that is not the network's own."""
        if name in self.targets:
            return self.targets[name]
        node = name.rpartition("(")[2].removesuffix(")") if name.endswith(")") else name.rpartition(".")[2]
        return (self.nodes[node],) if node in self.nodes else ()


class _Tracer(Tracer):
    """Traces as `prepare_fx` does that is told about InFloat."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, InFloat) or super().is_leaf_module(m, module_qualified_name)


def _at_fault(layer: Layer, audited: Audit) -> list[str]:
    """The layers that a remedy of a layer concerns: of one that only quantizes a value, those that take it."""
    if layer.features.get("operator") != "torch.quantize_per_tensor":
        return [layer.name]
    return [one.name for one in audited.layers if layer.name in one.inputs]


def _same(own: Tensor, other: Tensor) -> bool:
    db = decibels(as_tensor(other), as_tensor(own)) if own.shape == other.shape else -math.inf
    return db is None or db > LEAST_TRACED_DB


def runs(audited: Audit) -> bool:
    """Whether all of a network can be converted and run, be it all in float."""
    return not audited.stage and not audited.refusals and audited.broken is None


def quality(audited: Audit) -> float:
    """The SQNR in dB of a network's output against the float model, infinite if it is equal; of one that does not run as it
    is, minus infinity."""
    if not runs(audited):
        return -math.inf
    return math.inf if audited.engine_db is None else audited.engine_db


def helps(before: Audit, after: Audit) -> bool:
    """Whether a network is better than before: its output by SAME_DB, or fewer layers are to blame or refused and it is not
    worse."""
    return not harms(before, after) and (
        quality(after) > quality(before) + SAME_DB or _counted(after) < _counted(before)
    )


def harms(before: Audit, after: Audit) -> bool:
    """Whether a network is worse than before: its output by SAME_DB, or it does not run any more, not even with layers that
    are refused left in float."""
    fails = bool(after.stage) and not before.stage
    return fails or quality(after) < quality(before) - SAME_DB


def _counted(audited: Audit) -> int:
    return len(audited.blamed) + sum(len(refusal.layers) for refusal in audited.refusals)
