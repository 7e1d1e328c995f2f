"""The search for the least candidate that still shows a symptom. Candidates are executed in children, which may die."""

import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from conformance.host.isolation import Child, Death, Done
from conformance.models.fx import quiet
from conformance.models.taken import take_shortcuts
from conformance.repro.execution import run

from .candidate import Candidate
from .lines import GRADIENTS, least_lines
from .reductions import OF_STRUCTURE, REDUCTIONS, Reduction
from .repetitions import WRITES, Repeating
from .symptoms import Crashing, Symptom, float_model_accepts
from .text import executed, shows

ATTEMPTS = 150
SECONDS = 20.0
"""The most executions of a search, and the most seconds that it takes."""

HANGS = 10.0
"""CPU seconds after which an attempt counts as a hang."""


@dataclass(frozen=True)
class Shown:
    """A candidate that deviates, with the lines of its script."""

    candidate: Candidate
    body: str


def _built(candidate: Candidate) -> str:
    """The lines that bind `model`, whose constructor may refer to `qconfig`."""
    named = any("qconfig" in line for line in candidate.init)
    qconfig = f"qconfig = {candidate.qconfig}\n" if named else ""
    return f"{candidate.model_source}\n{qconfig}{candidate.model_lines}"


def fitted(candidate: Candidate) -> Candidate:
    """The candidate with literal parameters in the shapes that its model has. Raises ValueError if some are too small."""
    if isinstance(candidate.parameters, str):
        return candidate
    own = replace(candidate, parameters="own", sequential=False)
    _, scope = executed(_built(own))
    state = scope["model"].state_dict()
    parameters = []
    for name, value in candidate.parameters:
        if name not in state:
            continue
        shape = tuple(state[name].shape)
        if len(shape) != value.dim() or any(new > old for new, old in zip(shape, value.shape, strict=True)):
            raise ValueError(f"{name} of shape {tuple(value.shape)} does not fit {shape}")
        parameters.append((name, value[tuple(slice(size) for size in shape)].contiguous()))
    return replace(candidate, parameters=tuple(parameters) or "own")


@dataclass
class Search:
    """A bounded search. `accepted` are the candidates that deviate, the last of which is the least."""

    symptom: Symptom[Any]
    attempts: int = ATTEMPTS
    seconds: float = SECONDS
    accepted: list[Shown] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._child: Child[Candidate, Shown | None] = Child(self._attempt, HANGS)
        self._end = time.monotonic() + self.seconds
        self._seen: set[str] = set()

    def least(self, starts: Iterable[Candidate]) -> Shown | None:
        """The least candidate that is found from the first of `starts` that deviates; None if none of them does."""
        try:
            if not any(self._holds(start) for start in starts if self._goes_on):
                return None
            further = OF_STRUCTURE if self.symptom.names_operator else ()
            for reduction in (*further, *REDUCTIONS):
                self._reduce(reduction)
            return self.accepted[-1]
        finally:
            self._child.close()

    @property
    def _goes_on(self) -> bool:
        """Whether attempts and time are left."""
        return self.attempts > 0 and time.monotonic() < self._end

    def _reduce(self, reduction: Reduction) -> None:
        """Apply a reduction as long as the result still deviates."""
        while self._goes_on:
            for candidate in reduction(self.accepted[-1].candidate):
                if not self._goes_on:
                    return
                if self._holds(candidate):
                    break
            else:
                return

    def _holds(self, candidate: Candidate) -> bool:
        setting = least_lines(self.symptom.run, candidate).setting
        key = f"{setting}{candidate.model_lines}{candidate.clones}{candidate.perturbed}{candidate.threads}"
        if key in self._seen:
            return False
        self._seen.add(key)
        self.attempts -= 1
        shown = self._crashed(candidate) if isinstance(self.symptom, Crashing) else self._executed(candidate)
        if shown is not None:
            self.accepted.append(shown)
        return shown is not None

    def _executed(self, candidate: Candidate) -> Shown | None:
        outcome = self._child.do(candidate)
        return outcome.value if isinstance(outcome, Done) else None

    def _crashed(self, candidate: Candidate) -> Shown | None:
        """A crash of a child that did nothing else. Lowered models run nowhere but in a child."""
        with quiet():
            body = next(self.symptom.bodies(candidate), None)
        if body is None:
            return None
        child = Child(_execute, HANGS)
        try:
            return Shown(candidate, body) if isinstance(child.do(body), Death) else None
        finally:
            child.close()

    def _attempt(self, candidate: Candidate) -> Shown | None:
        """Execute the scripts of a candidate in this process. Returns the first that deviates as the symptom says."""
        take_shortcuts()
        with quiet():
            candidate = self.symptom.adapted(fitted(candidate))
            if self.symptom.has_float_model and not float_model_accepts(self.symptom.run, candidate):
                return None
            if self.symptom.values_matter and not _same_every_time(candidate):
                return None
            for body in self.symptom.bodies(candidate):
                if all(self._shows(candidate, body, memory) for memory in self._memories(candidate)):
                    return Shown(candidate, body)
        return None

    def _memories(self, candidate: Candidate) -> tuple[int, ...]:
        """What new memory holds in turn: a script that does not fill it deviates whatever that is."""
        return (0x5A, 0x00) if self.symptom.values_matter and not candidate.perturbed else (0x5A,)

    def _shows(self, candidate: Candidate, body: str, memory: int) -> bool:
        printed, scope = executed(body, memory)
        return shows(printed, self.symptom.check) and self.symptom.confirms(scope) and self._kept(candidate, scope)

    def _kept(self, candidate: Candidate, scope: dict[str, Any]) -> bool:
        """Whether the inputs are as before: a script whose model writes to them would compare with other inputs."""
        if isinstance(self.symptom, Repeating) and self.symptom.way == WRITES:
            return True
        pairs = zip(candidate.operands, candidate.inputs, strict=True)
        return all(torch.equal(scope[name], one.tensor) for name, one in pairs)


def _same_every_time(candidate: Candidate) -> bool:
    """Whether the model has the same parameters whenever it is built, without random ones and memory that nothing wrote."""
    if isinstance(candidate.parameters, str) and candidate.parameters != "own":
        return True
    states = []
    for memory in (0x00, 0x5A):
        with torch.random.fork_rng():
            torch.manual_seed(memory)
            _, scope = executed(GRADIENTS + _built(candidate), memory)
        states.append(scope["model"].state_dict())
    first, again = states
    return all(torch.equal(value, again[name]) for name, value in first.items() if isinstance(value, torch.Tensor))


def _execute(body: str) -> None:
    executed(body)


def deviates(text: str, check: str) -> bool:
    """Whether a script deviates in an interpreter of its own, which cannot import this project."""
    try:
        process = run(text)
    except subprocess.TimeoutExpired:
        return False
    return shows(process.stdout, check) and (process.returncode < 0 if check == "crashes" else process.returncode == 1)
