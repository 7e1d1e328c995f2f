"""The schedule of benchmarks: items in order, worker processes that time them, and the file of timings."""

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
"""Default number of passes over all cases. Each pass has its own processes: passes are independent observations."""
SAMPLE = 12
"""Most items that are timed for the estimate of the total time."""
TURNS = 6
"""Turns into which the rounds of two interpreters are divided."""
PATIENCE_SECONDS = 300.0
"""Seconds to wait for the answer of a worker before it is killed."""
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
"""Has glibc keep freed memory. Otherwise some calls fault in their pages anew, depending on addresses, which takes as long
as many kernels."""


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
    """Yield every pass over every case of (run, extent, threads), pass by pass. Each pass has its own random order."""
    for number in range(passes):
        order = list(cases)
        random.Random(number).shuffle(order)
        yield from (Item(run, extent, threads, number) for run, extent, threads in order)


class Died(Exception):
    """A worker ended or did not answer. The message says how it ended."""


class Worker:
    """A process that times models: `conformance.bench.worker`, run by any interpreter that has torch."""

    def __init__(self, python: str, threads: str, backend_config: str | None = None) -> None:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "KINETO_LOG_LEVEL": "99", **ALLOCATOR}
        environment.pop("OMP_WAIT_POLICY", None)  # as in a deployment
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
        """Send a request and return the answer. Raises Died if the process ends or takes more than PATIENCE_SECONDS."""
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
    """Times items with one interpreter, or with two in turns, and writes the timings."""

    writer: Writer
    against: str | None = None
    backend_config: str | None = None
    python: str = sys.executable
    _workers: dict[str, list[Worker]] = field(default_factory=dict)
    _pass: int = -1

    def pending(self, all_items: Iterable[Item]) -> list[Item]:
        """Return the items that have neither a timing nor a reason for having none."""
        return [item for item in all_items if not self._known(item)]

    def _known(self, item: Item) -> Timing | NotTimed | None:
        return self.writer.not_timed.get(item.case) or self.writer.timings.get((item.case, item.number))

    def estimate(self, all_items: Sequence[Item], clock: Callable[[], float] = time.monotonic) -> str:
        """Time a sample of the pending items, and return a line with the minutes that the rest will take.

        The first pass takes longer than later ones: it also judges each run, and later passes skip runs that deviate.
        """

        def mean_seconds(sample: Sequence[Item]) -> float:
            for item in sample[:1]:
                self.timing(item)  # not measured: it starts a process, which may take longer than an item
            start = clock()
            for item in sample[1:]:
                self.timing(item)
            return (clock() - start) / max(1, len(sample) - 1)

        todo = self.pending(all_items)
        first = [item for item in todo if item.number == todo[0].number]
        sample = first[:: max(1, len(first) // SAMPLE)][:SAMPLE]
        sampled = {item.case for item in sample}
        later = [item for item in todo if item.number == todo[0].number + 1 and item.case in sampled]
        seconds = mean_seconds(sample) * (len(first) - len(sample))
        seconds += mean_seconds(later) * (len(todo) - len(first) - len(later))
        cases = len({item.case for item in all_items})
        done = f", of which {len(all_items) - len(todo)} passes are done" if len(todo) < len(all_items) else ""
        return (
            f"latency: {cases} cases, {len(all_items)} passes over one{done}: about {math.ceil(seconds / 60)} minutes"
        )

    def timing(self, item: Item) -> Timing | NotTimed:
        """Return the timing of an item, from the file of an interrupted invocation if that has it."""
        timing = self._known(item)
        if timing is None:
            timing = self.measured(item)
            self.writer.add(timing)
        return timing

    def measured(self, item: Item) -> Timing | NotTimed:
        """Time an item. If a worker dies, end all of them and return the death as the reason."""
        try:
            return self._timed(item)
        except Died as death:
            self.end()
            return NotTimed(item.run.id, item.threads, item.extent, f"crashes: {death}")

    def _timed(self, item: Item) -> Timing | NotTimed:
        workers = self._workers_for(item)
        for worker in workers:
            answer = worker.ask(do="open", id=item.run.id, judged=item.number == 0)
            if "reason" in answer:
                return NotTimed(item.run.id, item.threads, item.extent, answer["reason"])
            if worker is workers[0]:
                counts = answer["counts"]
        disturbed = 0
        rounds: list[dict[str, list[float]]] = [{"quantized": [], "floating": []} for _ in workers]
        turns = TURNS if len(workers) > 1 else 1
        for turn in range(turns):
            for number in sorted(range(len(workers)), reverse=turn % 2 == 1):
                answer = workers[number].ask(do="time", rounds=ROUNDS // turns)
                if "reason" in answer:
                    return NotTimed(item.run.id, item.threads, item.extent, answer["reason"])
                disturbed += answer["disturbed"]
                for model, seconds in rounds[number].items():
                    seconds += answer[model]
        new, *base = (Builds(tuple(seconds["quantized"]), tuple(seconds["floating"])) for seconds in rounds)
        counts["kernels"] = tuple(counts["kernels"])
        return Timing(
            item.run.id,
            item.threads,
            item.number,
            item.extent,
            new,
            base[0] if base else None,
            Counts(**counts),
            disturbed,
        )

    def _workers_for(self, item: Item) -> list[Worker]:
        """Return the workers for the pass and threads of an item, this interpreter's first. Each pass starts new ones."""
        if item.number != self._pass:
            self.end()
            self._pass = item.number
        if item.threads not in self._workers:
            pythons = [self.python, *([self.against] if self.against else [])]
            self._workers[item.threads] = [Worker(python, item.threads, self.backend_config) for python in pythons]
        return self._workers[item.threads]

    def close(self, all_items: Iterable[Item]) -> None:
        """End the workers. Complete the file of timings if no item is pending, else leave it for a later invocation."""
        self.end()
        if self.pending(all_items):
            self.writer.interrupt()
        else:
            self.writer.finish()

    def summary(self, all_items: Sequence[Item]) -> Iterator[str]:
        """Yield lines with the number of timed cases, the reasons of the others, and the file or the passes left."""
        timed = {timing.case for timing in self.writer.timings.values()} - set(self.writer.not_timed)
        yield f"{len(timed)} cases timed, {len(self.writer.not_timed)} not:"
        reasons = Counter(": ".join(case.reason.split(": ")[:2]) for case in self.writer.not_timed.values())
        for reason, count in reasons.most_common():
            yield f"{count:6} {reason[:100]}"
        if todo := self.pending(all_items):
            yield f"{len(todo)} of {len(all_items)} passes are left: the same command goes on with {self.writer.partial}"
        else:
            yield f"timings: {self.writer.path}"

    def end(self) -> None:
        """End all workers."""
        for worker in chain.from_iterable(self._workers.values()):
            worker.end()
        self._workers = {}


def header(circumstances: Mapping[str, Any], form: str, passes: int, base: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the header of a file of timings. `base` has the versions of the interpreter of `--against`, if any."""
    environment = {name: value for name, value in circumstances.items() if name != "cpu_flags"}
    return {**environment, "cores": os.cpu_count(), "form": form, "passes": passes, "against": base}


def hello(python: str) -> dict[str, Any]:
    """Return the versions of torch and Python of an interpreter. Raises UsageError if it cannot time models."""
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
