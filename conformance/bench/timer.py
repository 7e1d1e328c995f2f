"""How long a lowered model takes beside its float model: both are called in turn, in many short rounds.

What is judged later is the ratio of the two. A machine that something else slows does not slow both by the same factor, so
that rounds in which it does are left out.
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


ROUND_SECONDS = 0.2e-3
"""What a round of one model takes at least: some thousand times what reading the clock takes."""


WARM_UP_SECONDS = 5e-3


ROUNDS = 24


FEWEST_ROUNDS = 8


MOST_SECONDS = 0.05
"""After which there are no more than the fewest undisturbed rounds."""


PATIENCE_SECONDS = 1.0
"""After which a machine that is disturbed all the time is taken as it is."""


DISTURBED = 1.08
"""A round is disturbed if the reference takes so many times what it takes at its fastest. Where a neighbour has the other
half of a core, that is 1.2 to 1.7, and a quantized model is slowed by another factor than a float one."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect garbage before the block, and none in it."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def seconds(call: Call, times: int, clock: Clock) -> float:
    """Mean seconds of `times` calls."""
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


def calls_a_round(call: Call, clock: Clock) -> int:
    """How many calls a round has; finding out warms up."""
    taken: list[float] = []
    start = clock()
    while len(taken) < 3 or clock() - start < WARM_UP_SECONDS:
        taken.append(seconds(call, 1, clock))
    return max(1, round(ROUND_SECONDS / max(statistics.median(taken), 1e-9)))


class Pace:
    """Tells by a computation that always takes as long whether something else slows the machine."""

    def __init__(self, reference: Call, clock: Clock = time.perf_counter) -> None:
        self.reference, self.clock, self.fastest = reference, clock, math.inf

    @classmethod
    def of_torch(cls) -> "Pace":
        """The reference is a product of matrices that fit the innermost cache."""
        left, right, out = torch.ones(96, 96), torch.ones(96, 96), torch.empty(96, 96)
        pace = cls(lambda: torch.mm(left, right, out=out))
        for _ in range(1000):
            pace.now()
        return pace

    def now(self) -> float:
        """How many times as long as at its fastest the reference takes, once what it reads is in the cache again."""
        self.reference()
        taken = seconds(self.reference, 2, self.clock)
        self.fastest = min(self.fastest, taken)
        return taken / self.fastest

    def forget(self) -> None:
        """Expect a little less than before, so that a machine that is slower for good is waited for for a while only."""
        self.fastest *= 1.002


def interleaved(
    calls: Sequence[Call], times: Sequence[int], pace: Pace, rounds: int = ROUNDS
) -> tuple[list[list[float]], int]:
    """Mean seconds of each call, by round, and how many rounds were left out because something else slowed the machine.

    In a round they are called in turn, each as many `times`, and each goes first as often as the others. A round is
    undisturbed if the pace before and after it was; if there are too few of those, the least disturbed are added.
    """
    clock = pace.clock
    pace.forget()
    with uncollected():
        for call in calls:
            call()  # what another process had the cache for is in it again
        made: list[tuple[float, list[float]]] = []
        orders = cycle([[*range(n, len(calls)), *range(n)] for n in range(len(calls))])
        undisturbed, start, before = 0, clock(), pace.now()
        while undisturbed < rounds:
            elapsed = clock() - start
            if undisturbed >= FEWEST_ROUNDS and elapsed > MOST_SECONDS:
                break
            if len(made) >= FEWEST_ROUNDS and elapsed > PATIENCE_SECONDS:
                break
            taken = {which: seconds(calls[which], times[which], clock) for which in next(orders)}
            after = pace.now()
            slowed = max(before, after)
            made.append((slowed, [taken[which] for which in range(len(calls))]))
            undisturbed, before = undisturbed + (slowed <= DISTURBED), after
    fewest = min(rounds, FEWEST_ROUNDS, len(made))
    limit = max(DISTURBED, sorted(slowed for slowed, _ in made)[fewest - 1])
    kept = [taken for slowed, taken in made if slowed <= limit]
    return [[*one] for one in zip(*kept, strict=True)], len(made) - len(kept)


class Timed:
    """The program and the float model of a run, with inputs as each takes them. Everything happens in its engine's scope."""

    def __init__(self, run: Run, given: Subject, program: Program) -> None:
        self.engine, self.program, self.floating = engine(run.engine), program, build.floating(given)
        self.inputs = given.fresh_inputs()
        self.times: list[int] = []

    @classmethod
    def of(cls, run: Run) -> "Timed":
        """Build both. Raises what torch and the engine raise."""
        given, config = build.subject(run), run.backend.config
        prepared = fx.prepare(given, config)
        fx.calibrate(prepared, given)
        used = engine(run.engine)
        return cls(run, given, used.compile(used.convert(prepared, config), given.fresh_inputs()))

    def calls(self) -> tuple[Call, Call]:
        """The lowered model and the float model, each called with its inputs."""
        program, floating, inputs = self.program, self.floating, self.inputs
        return (lambda: program(*inputs)), (lambda: floating(*inputs))

    def rounds(self, pace: Pace, rounds: int) -> tuple[list[list[float]], int]:
        """What `interleaved` makes of the two. The first time, they are warmed up for longer."""
        calls = self.calls()
        self.times = self.times or [calls_a_round(call, pace.clock) for call in calls]
        return interleaved(calls, self.times, pace, rounds)

    def counts(self) -> Counts:
        names = [kernel.name for kernel in self.engine.execute(self.program, self.inputs).kernels]
        last = [name.rpartition(".")[2] for name in names]
        return Counts(
            tuple(name for name in names if name not in CONVERSIONS),
            sum(name.startswith("quantize") for name in last),
            sum(name.startswith("dequantize") for name in last),
            self.engine.weight_bytes(self.program),
            counters.of(self.calls()[0]),
        )
