"""Timing of a lowered model beside its float model: both are called in turn, in many short rounds.

The result is judged by the ratio of the two. Another process that slows the machine does not slow both models by the same
factor, so rounds that it disturbs are left out.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle

import torch

from conformance.cases.runs import Run
from conformance.engines.protocol import Program
from conformance.engines.registry import engine
from conformance.engines.trace import CONVERSIONS
from conformance.models import build, fx
from conformance.models.build import Subject

from . import counters
from .results import Counts

Call = Callable[[], object]
Clock = Callable[[], float]
"""Returns seconds."""

ROUND_SECONDS = 0.2e-3
"""Least seconds of a round of one model: some thousand times as long as reading the clock takes."""


WARM_UP_SECONDS = 5e-3
"""Seconds for which a model is called before it is timed."""


ROUNDS = 24
"""Undisturbed rounds of a pass over a case."""


FEWEST_ROUNDS = 8
"""Least number of rounds, however long they take."""


MOST_SECONDS = 0.05
"""Seconds after which FEWEST_ROUNDS undisturbed rounds are enough."""


PATIENCE_SECONDS = 1.0
"""Seconds after which disturbed rounds are used: another process slows the machine all the time."""


DISTURBED = 1.08
"""Factor over its fastest time from which on the reference computation counts as disturbed. A process on the other
hardware thread of a core slows it by 1.2 to 1.7, and a quantized model by another factor than a float model."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect garbage before the block and disable collection inside it."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def seconds(call: Call, times: int, clock: Clock) -> float:
    """Return the mean seconds of `times` calls."""
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


def calls_a_round(call: Call, clock: Clock) -> int:
    """Return how many calls a round has. Measuring it warms the model up."""
    calls: list[float] = []
    start = clock()
    while len(calls) < 3 or clock() - start < WARM_UP_SECONDS:
        calls.append(seconds(call, 1, clock))
    return max(1, round(ROUND_SECONDS / max(statistics.median(calls), 1e-9)))


class Pace:
    """Detects that another process slows the machine, by the time of a reference computation of constant length."""

    def __init__(self, reference: Call, clock: Clock = time.perf_counter) -> None:
        self.reference, self.clock, self.fastest = reference, clock, math.inf

    @classmethod
    def of_torch(cls) -> "Pace":
        """Use a product of matrices that fit the innermost cache as the reference."""
        left, right, out = torch.ones(96, 96), torch.ones(96, 96), torch.empty(96, 96)
        pace = cls(lambda: torch.mm(left, right, out=out))
        for _ in range(1000):
            pace.now()
        return pace

    def now(self) -> float:
        """Return the time of the reference as a multiple of its fastest. A first call brings its data into the cache."""
        self.reference()
        elapsed = seconds(self.reference, 2, self.clock)
        self.fastest = min(self.fastest, elapsed)
        return elapsed / self.fastest

    def forget(self) -> None:
        """Raise the fastest time a little, so that a machine that stays slower counts as undisturbed after a while."""
        self.fastest *= 1.002


def interleaved(
    calls: Sequence[Call], times: Sequence[int], pace: Pace, rounds: int = ROUNDS
) -> tuple[list[list[float]], int]:
    """Return the mean seconds of each call by round, and the number of disturbed rounds that were left out.

    A round calls each of `calls` in turn, each as often as `times` says; each goes first equally often. A round is
    undisturbed if the pace before and after it is. If there are too few such rounds, the least disturbed ones are added.
    """
    clock = pace.clock
    pace.forget()
    with uncollected():
        for call in calls:
            call()  # refills the cache that another process has used
        measured: list[tuple[float, list[float]]] = []
        orders = cycle([[*range(n, len(calls)), *range(n)] for n in range(len(calls))])
        undisturbed, start, before = 0, clock(), pace.now()
        while undisturbed < rounds:
            elapsed = clock() - start
            if undisturbed >= FEWEST_ROUNDS and elapsed > MOST_SECONDS:
                break
            if len(measured) >= FEWEST_ROUNDS and elapsed > PATIENCE_SECONDS:
                break
            by_call = {number: seconds(calls[number], times[number], clock) for number in next(orders)}
            after = pace.now()
            slowdown = max(before, after)
            measured.append((slowdown, [by_call[number] for number in range(len(calls))]))
            undisturbed, before = undisturbed + (slowdown <= DISTURBED), after
    fewest = min(rounds, FEWEST_ROUNDS, len(measured))
    limit = max(DISTURBED, sorted(slowdown for slowdown, _ in measured)[fewest - 1])
    kept = [round_seconds for slowdown, round_seconds in measured if slowdown <= limit]
    return [[*call_seconds] for call_seconds in zip(*kept, strict=True)], len(measured) - len(kept)


class Timed:
    """The program and the float model of a run, with inputs for both. Use it within the scope of the run's engine."""

    def __init__(self, run: Run, subject: Subject, program: Program) -> None:
        self.engine, self.program, self.floating = engine(run.engine), program, build.floating(subject)
        self.inputs = subject.fresh_inputs()
        self.times: list[int] = []

    @classmethod
    def of(cls, run: Run) -> "Timed":
        """Build both models of a run. Exceptions of torch and of the engine are not caught."""
        subject, config = build.subject(run), run.backend.config
        prepared = fx.prepare(subject, config)
        fx.calibrate(prepared, subject)
        lowering = engine(run.engine)
        return cls(run, subject, lowering.compile(lowering.convert(prepared, config), subject.fresh_inputs()))

    def calls(self) -> tuple[Call, Call]:
        """Return calls of the lowered and of the float model with their inputs."""
        program, floating, inputs = self.program, self.floating, self.inputs
        return (lambda: program(*inputs)), (lambda: floating(*inputs))

    def rounds(self, pace: Pace, rounds: int) -> tuple[list[list[float]], int]:
        """Return the result of `interleaved` for both models. The first call warms them up."""
        calls = self.calls()
        self.times = self.times or [calls_a_round(call, pace.clock) for call in calls]
        return interleaved(calls, self.times, pace, rounds)

    def counts(self) -> Counts:
        """Execute the program once and return its kernels, conversions, bytes of weights and instructions."""
        names = [kernel.name for kernel in self.engine.execute(self.program, self.inputs).kernels]
        operators = [name.rpartition(".")[2] for name in names]
        return Counts(
            tuple(name for name in names if name not in CONVERSIONS),
            sum(name.startswith("quantize") for name in operators),
            sum(name.startswith("dequantize") for name in operators),
            self.engine.weight_bytes(self.program),
            counters.of(self.calls()[0]),
        )
