"""Timing of a lowered model beside its float model: both are called in turn, in many short rounds.

The result is judged by the ratio of the two. Another process that slows the machine does not slow both models by the same
factor, so rounds that it disturbs are left out.
"""

import gc
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from conformance.cases.runs import Run
from conformance.engines.protocol import Engine, Program
from conformance.engines.registry import engine
from conformance.models import build, fx
from conformance.models.trace import CONVERSIONS

from . import counters
from .timings import Counts

Call = Callable[[], object]
Clock = Callable[[], float]
"""Returns seconds."""

ROUND_SECONDS = 0.2e-3
"""Least seconds of a round of one model: some thousand times as long as reading the clock takes."""
WARM_UP_SECONDS = 3e-3
"""Seconds for which a model is called before it is timed."""
PLACEMENTS = 4
"""Places in memory at which the inputs of a case lie in turn in a pass. Addresses decide how caches are used, and a case is
up to a quarter slower at one than at another; so more of them say more than more rounds at one."""
ROUNDS = 6
"""Undisturbed rounds at one placement."""
FEWEST_ROUNDS = 2
"""Least number of rounds at one placement, however long they take."""
MOST_SECONDS = 0.0125
"""Seconds after which FEWEST_ROUNDS undisturbed rounds are enough."""
PATIENCE_SECONDS, IMPATIENCE_SECONDS = 0.25, 0.05
"""Seconds after which disturbed rounds are used: another process slows the machine all the time. The second number is that of
passes that can be repeated later."""
LEAST_TRIES = 6
"""Rounds that are tried at least, however long they take: of long calls, one disturbed round would else end the pass."""
MOST_PADDING, CACHE_LINE = 1 << 18, 64
"""The greatest size of the memory that is taken between two placements, and the unit of its size, in bytes."""
DISTURBED = 1.08
"""Factor over its fastest time from which on the reference computation counts as disturbed. A process on the other
hardware thread of a core slows it by 1.2 to 1.7, and a quantized model by another factor than a float model."""
SETTLING, ELSEWHERE = 20, 1.05
"""Calls of the reference computation in a new process, and the greatest factor by which it is slower elsewhere in memory."""
REFILLS = 2
"""Calls of the reference and of the probe after which they find their data and code in the caches. After a large layer, the
first call of the probe takes 1.4 times as long on a quiet machine."""
PROBE_VARIES = 1.1
"""Factor by which the probe varies on a quiet machine."""


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
    """Detects that another process slows the machine, by the times of two computations of constant length.

    The reference is a product of matrices, which tells the frequency of the processor. A process on the other hardware thread
    of the core hardly slows that, but it slows scalar code by half, and some kernels to a half: the probe is a loop of the
    interpreter.
    """

    def __init__(self, reference: Call, clock: Clock = time.perf_counter, probe: Call | None = None) -> None:
        self.reference, self.clock, self.probe = reference, clock, probe
        self.fastest = self.fastest_probe = math.inf
        self.latest = math.inf
        """The fastest time of the reference since `forget`, in seconds."""
        self.quiet = True
        """Whether the last rounds had enough undisturbed ones."""

    @classmethod
    def of_torch(cls) -> "Pace":
        """Use a product of matrices that fit the innermost cache as the reference."""
        left, right, out = torch.ones(96, 96), torch.ones(96, 96), torch.empty(96, 96)
        pace = cls(lambda: torch.mm(left, right, out=out), probe=lambda: sum(range(1000)))
        for _ in range(1000):
            pace.now()
        return pace

    def now(self) -> float:
        """Return the time of the reference, or of the probe if that is slower, as a multiple of its fastest.

        Calls before bring data and code into the caches, which a large layer has filled with its own.
        """
        for _ in range(REFILLS):
            self.reference()
        elapsed = seconds(self.reference, 2, self.clock)
        self.fastest, self.latest = min(self.fastest, elapsed), min(self.latest, elapsed)
        slowdown = elapsed / self.fastest
        if self.probe is not None:
            for _ in range(REFILLS):
                self.probe()
            probed = seconds(self.probe, 1, self.clock)
            self.fastest_probe = min(self.fastest_probe, probed)
            slowdown = max(slowdown, probed / self.fastest_probe / PROBE_VARIES)
        return slowdown

    def moved(self) -> None:
        """Measure the fastest time of the reference anew in a forked process, whose memory lies elsewhere, which makes a
        difference of some percent. A time that is much slower is taken for a disturbance."""
        self.latest = math.inf
        for _ in range(SETTLING):
            self.now()
        self.fastest = max(self.fastest, min(self.latest, self.fastest * ELSEWHERE))

    def forget(self) -> None:
        """Raise the fastest time a little, so that a machine that stays slower counts as undisturbed after a while."""
        self.fastest *= 1.0005
        self.latest = math.inf


def interleaved(
    calls: Sequence[Call], times: Sequence[int], pace: Pace, rounds: int = ROUNDS, patience: float = PATIENCE_SECONDS
) -> tuple[list[list[float]], int]:
    """Return the mean seconds of each call by round, and the number of disturbed rounds that were left out.

    A round calls each of `calls` in turn, each as often as `times` says; each goes first equally often. A round is
    undisturbed if the pace before and after it is. If there are too few such rounds after `patience` seconds, the least
    disturbed ones are added.
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
            if len(measured) >= LEAST_TRIES and elapsed > patience:
                break
            by_call = {number: seconds(calls[number], times[number], clock) for number in next(orders)}
            after = pace.now()
            slowdown = max(before, after)
            measured.append((slowdown, [by_call[number] for number in range(len(calls))]))
            undisturbed, before = undisturbed + (slowdown <= DISTURBED), after
    pace.quiet = undisturbed >= min(rounds, FEWEST_ROUNDS)
    fewest = min(rounds, FEWEST_ROUNDS, len(measured))
    limit = max(DISTURBED, sorted(slowdown for slowdown, _ in measured)[fewest - 1])
    kept = [round_seconds for slowdown, round_seconds in measured if slowdown <= limit]
    return [[*call_seconds] for call_seconds in zip(*kept, strict=True)], len(measured) - len(kept)


class Timed:
    """The program and the float model of a run, with inputs for both. Use it within the scope of the run's engine."""

    def __init__(
        self, name: str, lowering: Engine, program: Program, floating: Program, inputs: Sequence[Tensor]
    ) -> None:
        self.engine, self.program, self.floating = lowering, program, floating
        self.inputs = [x.clone() for x in inputs]
        self.reshapes = _reshapes(floating, self.inputs) or _reshapes(program, self.inputs)
        self.times: list[int] = []
        self._chance, self._padding = random.Random(f"{name} {os.getpid()}"), torch.empty(0)

    @classmethod
    def of(cls, run: Run) -> "Timed":
        """Build both models of a run. Exceptions of torch and of the engine are not caught."""
        subject, lowering, program = lowered(run)
        return cls(run.id, lowering, program, build.floating(subject), subject.fresh_inputs())

    def place(self) -> None:
        """Put the inputs at another place in memory."""
        size = self._chance.randrange(CACHE_LINE, MOST_PADDING, CACHE_LINE)
        self._padding = torch.empty(size, dtype=torch.uint8)
        self.inputs = [x.clone() for x in self.inputs]

    def calls(self) -> tuple[Call, Call]:
        """Return calls of the lowered and of the float model with their inputs."""
        program, floating, inputs = self.program, self.floating, self.inputs
        if self.reshapes:  # each call needs a view of its own, or the next one would get another shape
            return (lambda: program(*[x.detach() for x in inputs])), (lambda: floating(*[x.detach() for x in inputs]))
        return (lambda: program(*inputs)), (lambda: floating(*inputs))

    def rounds(
        self, pace: Pace, rounds: int, *, floating: bool = True, patience: float = PATIENCE_SECONDS
    ) -> tuple[list[list[float]], int]:
        """Return the result of `interleaved` with the inputs at a new place: of both models, or of the lowered one alone.
        The first call warms them up."""
        self.place()
        calls = self.calls()[: 1 + floating]
        self.times += [calls_a_round(call, pace.clock) for call in calls[len(self.times) :]]
        return interleaved(calls, self.times[: len(calls)], pace, rounds, patience)

    def counts(self) -> Counts:
        """Execute the program once and return its kernels, conversions, bytes of weights, instructions and work."""
        names = [kernel.name for kernel in self.engine.execute(self.program, self.inputs).kernels]
        operators = [name.rpartition(".")[2] for name in names]
        weight_bytes = self.engine.weight_bytes(self.program)
        # a lookup reads a few rows of its table, which are as many as it returns
        read = 0 if any("embedding" in name for name in operators) else weight_bytes
        return Counts(
            tuple(name for name in names if name not in CONVERSIONS),
            sum(name.startswith("quantize") for name in operators),
            sum(name.startswith("dequantize") for name in operators),
            weight_bytes,
            counters.of(self.calls()[0]),
            *work(self.calls()[1], self.inputs, read),
        )


def work(call: Call, inputs: Sequence[Tensor], weight_bytes: int) -> tuple[int, int]:
    """Return the operations and the traffic of a call of a float model: what it has to compute and to move at least.

    Operations are the multiplications and additions of matrix products and convolutions, as torch counts them; other
    operators have none. Traffic is the bytes of the inputs, of the outputs, and of the weights that are read, as saved.
    """
    # oneDNN's recurrent layers are one operator, whose products torch does not count
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        outputs = call()
    tensors = [leaf for leaf in (*inputs, *tree_leaves(outputs)) if isinstance(leaf, Tensor)]
    return counter.get_total_flops(), weight_bytes + sum(x.numel() * x.element_size() for x in tensors)


def lowered(run: Run) -> tuple[build.Subject, Engine, Program]:
    """Return the float model of a run with its data, the engine, and the engine's program of the lowered model."""
    subject, config, lowering = build.subject(run), run.backend.config, engine(run.engine)
    prepared = fx.prepare(subject, config)
    fx.calibrate(prepared, subject)
    return subject, lowering, lowering.compile(lowering.convert(prepared, config), subject.fresh_inputs())


def _reshapes(model: Program, inputs: Sequence[Tensor]) -> bool:
    """Whether a model changes the shape of its inputs themselves, as `unsqueeze_` does."""
    copies = [x.clone() for x in inputs]
    model(*copies)
    return [x.shape for x in copies] != [x.shape for x in inputs]
