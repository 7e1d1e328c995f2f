"""Guarded executions of a lowered model, in memory where nothing beside a tensor is accessible, and the check of them."""

import copy
import os
from typing import Any

import torch
from torch.fx import GraphModule

from conformance.cases.runs import Run
from conformance.engines.registry import engine
from conformance.host import guard
from conformance.models.mutation import Watching
from conformance.results.findings.memory import OutOfBounds
from conformance.stopwatch import Stopwatch

from .evidence import Back, Evidence, Front, Guarded, Outcome, outcome, skip
from .recorder import Recorder

IMPORTED_IN = os.getpid()
"""The process that imported this module. It keeps its allocator: only children that it forks are guarded."""

Found = set[tuple[str | None, guard.Access]]


class _Attributing(Watching):  # type: ignore[no-untyped-call]
    """Adds the accesses of each operator call to `found`, by the operator's name."""

    def __init__(self, scope: guard.Scope, found: Found) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.scope, self.found = scope, found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        finally:
            name = f"{func.namespace}.{func.overloadpacket.__name__}"
            self.found |= {(name, access) for access in self.scope.taken()}


class _Lowering:
    """The lowered model of a run, made anew, so that its weights are packed into memory that is guarded."""

    def __init__(self, run: Run, front: Front, back: Back) -> None:
        assert back.lowered is not None
        self.run, self.front, self.lowered = run, front, back.lowered
        self.state: dict[str, Any] | None = None
        try:
            state = self.lowered.state_dict()
            copy.deepcopy(state)
        except Exception:  # the engine packs weights and does not unpack them
            return
        if not any(map(_shares_weights, state.values())):
            self.state = state

    def again(self) -> GraphModule:
        """Load a copy of the state, for which weights are packed anew: that takes less time than a conversion."""
        if self.state is None:
            assert self.front.prepared is not None
            return engine(self.run.engine).convert(self.front.prepared, self.run.backend.config)
        self.lowered.load_state_dict(copy.deepcopy(self.state), assign=True)
        return self.lowered


def _shares_weights(value: Any) -> bool:
    """Whether copies of a value of a state share its packed weights: of recurrent layers they do."""
    return isinstance(value, torch.ScriptObject) and ".rnn." in value._type().qualified_name()  # type: ignore[attr-defined]


def executed(watch: Stopwatch, run: Run, front: Front, back: Back) -> Guarded | None:
    """Pack the weights of a run's lowered model and execute it, with each side of what torch allocates guarded.

    None if the run lacks the check, or if its lowered model cannot be executed without a guard.
    """
    if "memory" not in run.checks or front.subject is None or back.lowered is None or back.execution is None:
        return None
    if os.getpid() == IMPORTED_IN:
        return Guarded(reason="memory is guarded in forked children only")
    found: Found = set()
    recorder, missed = Recorder(watch), 0
    with watch():
        lowering = _Lowering(run, front, back)
    for side in guard.PLACEMENTS:
        inputs = front.subject.fresh_inputs()
        try:
            with guard.guarded(side) as scope, torch.no_grad():
                with recorder.stage("lower"):
                    lowered = lowering.again()
                found |= {(None, access) for access in scope.taken()}
                copied = [x.clone() for x in inputs]
                if "lower" not in recorder.failures:
                    with recorder.stage("execute"), _Attributing(scope, found):
                        lowered(*copied)
                    found |= {(None, access) for access in scope.taken()}
        except guard.Unavailable as error:
            return Guarded(reason=f"memory is not guarded: {error}")
        missed += scope.missed
    reasons = [f"{stage} raises {failure.text}" for stage, failure in recorder.failures.items()]
    if missed:
        reasons.append(f"there is no room to guard {missed} allocations or accesses")
    return Guarded(frozenset(found), "; ".join(reasons))


def memory(evidence: Evidence) -> Outcome:
    """Neither kernels nor packing of weights read or write outside of the memory of operands and result, on either side."""
    guarded = evidence.guarded
    if guarded is None:
        return skip("not executed")
    if guarded.reason and not guarded.accesses:
        return skip(guarded.reason)
    ordered = sorted(guarded.accesses, key=lambda one: (one[0] or "", one[1]))
    return outcome(OutOfBounds("memory", kernel, one.access, one.side, one.bytes) for kernel, one in ordered)
