"""What is timed, in which order and by which processes, and where the timings go."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from conformance.cases.runs import Run
from conformance.errors import UsageError

from .results import THREADS, Builds, Counts, NotTimed, Timing, Writer, case_name
from .timer import ROUNDS

ROOT = Path(__file__).parents[2]
EXTENTS_OF = {"quick": ("small",), "full": ("small", "medium", "large")}
THREADS_OF = {"quick": ("1",), "full": THREADS}
PASSES = 5
"""Passes over all cases, each with processes of its own: the independent observations that a comparison has."""
SAMPLE = 12
"""Items that are timed before it is said how long all of them will take."""
TURNS = 6
"""In how many turns the rounds of two interpreters are taken."""
PATIENCE_SECONDS = 300.0
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
"""Lets glibc keep what is freed. Else it depends on where memory happens to lie whether a call has to have its pages anew,
which takes as long as many a kernel."""


@dataclass(frozen=True, repr=False)
class Item:
    """One pass over one case."""

    run: Run
    extent: str
    threads: str
    number: int

    @property
    def case(self) -> str:
        return case_name(self.run.id, self.threads)

    @property
    def id(self) -> str:
        return f"{self.case}#{self.number}"

    def __repr__(self) -> str:
        return self.id


def items(cases: Sequence[tuple[Run, str, str]], passes: int = PASSES) -> Iterator[Item]:
    """Every pass over every case of run, extent and threads: pass by pass, each in an order of its own."""
    for number in range(passes):
        order = list(cases)
        random.Random(number).shuffle(order)
        yield from (Item(run, extent, threads, number) for run, extent, threads in order)


class Died(Exception):
    """A process that ended, or did not answer, and how."""


class Worker:
    """A process that times models; see `measuring`."""

    def __init__(self, python: str, threads: str, backend_config: str | None = None) -> None:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "KINETO_LOG_LEVEL": "99", **ALLOCATOR}
        environment.pop("OMP_WAIT_POLICY", None)  # as a deployment has it
        self._process = subprocess.Popen(
            [
                python,
                "-W",
                "ignore",
                "-m",
                "conformance.bench.worker",
                threads,
                *([backend_config] if backend_config else []),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer. Raises Died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(PATIENCE_SECONDS, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            status = self._process.wait()
            raise Died(f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass
class Bench:
    """Times items with one interpreter, or with two in turns, and writes what comes of it."""

    writer: Writer
    against: str | None = None
    backend_config: str | None = None
    python: str = sys.executable
    _workers: dict[str, list[Worker]] = field(default_factory=dict)
    _pass: int = -1

    def pending(self, every: Iterable[Item]) -> list[Item]:
        """Items that have not come to anything yet."""
        return [one for one in every if not self._known(one)]

    def _known(self, item: Item) -> Timing | NotTimed | None:
        return self.writer.not_timed.get(item.case) or self.writer.timings.get((item.case, item.number))

    def estimate(self, every: Sequence[Item], clock: Callable[[], float] = time.monotonic) -> str:
        """Time a few cases, and say how long the rest will take. The first pass judges, the later ones leave out what does
        not conform."""

        def seconds_each(some: Sequence[Item]) -> float:
            for one in some[:1]:
                self.timing(one)  # starting a process takes longer than many an item
            start = clock()
            for one in some[1:]:
                self.timing(one)
            return (clock() - start) / max(1, len(some) - 1)

        todo = self.pending(every)
        first = [one for one in todo if one.number == todo[0].number]
        sample = first[:: max(1, len(first) // SAMPLE)][:SAMPLE]
        sampled = {one.case for one in sample}
        later = [one for one in todo if one.number == todo[0].number + 1 and one.case in sampled]
        seconds = seconds_each(sample) * (len(first) - len(sample))
        seconds += seconds_each(later) * (len(todo) - len(first) - len(later))
        cases = len({one.case for one in every})
        went_on = f", of which {len(every) - len(todo)} passes are done" if len(todo) < len(every) else ""
        return f"latency: {cases} cases, {len(every)} passes over one{went_on}: about {math.ceil(seconds / 60)} minutes"

    def timing(self, item: Item) -> Timing | NotTimed:
        """What an item came to; what an interrupted invocation knows of it is taken from there."""
        known = self._known(item)
        if known is None:
            known = self.measured(item)
            self.writer.add(known)
        return known

    def measured(self, item: Item) -> Timing | NotTimed:
        try:
            return self._timed(item)
        except Died as death:
            self.end()
            return NotTimed(item.run.id, item.threads, item.extent, f"crashes: {death}")

    def _timed(self, item: Item) -> Timing | NotTimed:
        workers = self._of(item)
        for worker in workers:
            answer = worker.ask(do="open", id=item.run.id, judged=item.number == 0)
            if "reason" in answer:
                return NotTimed(item.run.id, item.threads, item.extent, answer["reason"])
            if worker is workers[0]:
                counts = answer["counts"]
        disturbed = 0
        taken: list[dict[str, list[float]]] = [{"quantized": [], "floating": []} for _ in workers]
        turns = TURNS if len(workers) > 1 else 1
        for turn in range(turns):
            for which in sorted(range(len(workers)), reverse=turn % 2 == 1):
                answer = workers[which].ask(do="time", rounds=ROUNDS // turns)
                if "reason" in answer:
                    return NotTimed(item.run.id, item.threads, item.extent, answer["reason"])
                disturbed += answer["disturbed"]
                for name, rounds in taken[which].items():
                    rounds += answer[name]
        new, *base = (Builds(tuple(one["quantized"]), tuple(one["floating"])) for one in taken)
        counts["kernels"] = tuple(counts["kernels"])
        other, counted = base[0] if base else None, Counts(**counts)
        return Timing(item.run.id, item.threads, item.number, item.extent, new, other, counted, disturbed)

    def _of(self, item: Item) -> list[Worker]:
        """The workers of a pass with as many threads: this interpreter's first."""
        if item.number != self._pass:
            self.end()
            self._pass = item.number
        if item.threads not in self._workers:
            pythons = [self.python, *([self.against] if self.against else [])]
            self._workers[item.threads] = [Worker(python, item.threads, self.backend_config) for python in pythons]
        return self._workers[item.threads]

    def close(self, every: Iterable[Item]) -> None:
        """End the processes. The file takes its place if every item has come to something."""
        self.end()
        if self.pending(every):
            self.writer.interrupt()
        else:
            self.writer.finish()

    def summary(self, every: Sequence[Item]) -> Iterator[str]:
        """Yield how many cases were timed, why others were not, and where it stands."""
        timed = {one.case for one in self.writer.timings.values()} - set(self.writer.not_timed)
        yield f"{len(timed)} cases timed, {len(self.writer.not_timed)} not:"
        reasons = Counter(": ".join(one.reason.split(": ")[:2]) for one in self.writer.not_timed.values())
        for reason, count in reasons.most_common():
            yield f"{count:6} {reason[:100]}"
        if todo := self.pending(every):
            yield f"{len(todo)} of {len(every)} passes are left: the same command goes on with {self.writer.partial}"
        else:
            yield f"timings: {self.writer.path}"

    def end(self) -> None:
        for worker in chain.from_iterable(self._workers.values()):
            worker.end()
        self._workers = {}


def header(circumstances: Mapping[str, Any], form: str, passes: int, base: Mapping[str, Any] | None) -> dict[str, Any]:
    """The header of a file of timings. `base` has the versions of the other interpreter."""
    kept = {name: value for name, value in circumstances.items() if name != "cpu_flags"}
    return {**kept, "cores": os.cpu_count(), "form": form, "passes": passes, "against": base}


def hello(python: str) -> dict[str, Any]:
    """The versions of an interpreter. Raises UsageError if it cannot time models."""
    try:
        worker = Worker(python, "1")
    except OSError as error:
        raise UsageError(f"--against {python}: {error.strerror}") from error
    try:
        return worker.ask(do="hello")
    except Died as death:
        raise UsageError(
            f"--against {python}: {death}: it needs torch and what this suite's runs need (pyproject.toml, group run)"
        ) from death
    finally:
        worker.end()
