"""Runs in forked children, so that a crash or hang of a kernel costs one row.

A child takes a batch. If it dies, the job that it died on is done again in a child of its own. Dying there too, it is the
one that crashes, what the child said before stands, and another child goes on after it. Otherwise an earlier job has damaged
the child's memory: all of them are done again, each alone, and a job that dies alone is the one that crashes.
The parent must not have computed with more than one thread before it forks: a child has none of the parent's threads.
"""

import faulthandler
import gc
import math
import multiprocessing
import os
import pickle
import resource
import select
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

HANG_SECONDS = 60.0
"""Seconds of computing. A run takes some 50 ms, a second under emulation; what is not back by then never will be."""

PATIENCE = 3.0
"""Seconds on the clock for each that a job may compute: what waits for itself is told from what waits for a busy machine."""


@dataclass(frozen=True)
class Death:
    """A job that ended its child: by a signal, by leaving, or by not coming back."""

    reason: str


@dataclass(frozen=True)
class Done(Generic[R]):
    """What a job returned."""

    value: R


@dataclass(frozen=True)
class Raised:
    """A job whose code raised: a fault of ours, neither the engine's nor a crash."""

    traceback: str


Outcome = Done[R] | Death | Raised


def run_isolated(jobs: Sequence[T], work: Callable[[T], R], seconds: float = HANG_SECONDS) -> list[Outcome[R]]:
    """Do `work` on every job in children and return what each came to, in order."""
    outcomes: list[Outcome[R]] = []
    while len(outcomes) < len(jobs):
        rest = jobs[len(outcomes) :]
        together = _in_child(rest, work, seconds)
        if together and isinstance(together[-1], Death) and len(together) > 1:
            (alone,) = _in_child([rest[len(together) - 1]], work, seconds)
            if not isinstance(alone, Death):
                # it takes an earlier one to kill it: which one shows when each is alone
                together = [outcome for job in rest[: len(together)] for outcome in _in_child([job], work, seconds)]
            else:
                together[-1] = alone
        outcomes += together
    return outcomes


def _in_child(jobs: Sequence[T], work: Callable[[T], R], seconds: float) -> list[Outcome[R]]:
    """Do all jobs in one child. The last outcome is a Death if the child did not get through."""
    gc.freeze()  # what is there already need not be looked at, nor its pages copied, by a child's collector
    with tempfile.TemporaryFile() as said:
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(receive)
            _serve(jobs, work, seconds, send, said.fileno())
        os.close(send)
        outcomes: list[Outcome[R]] = []
        try:
            death = _collect(receive, len(jobs), PATIENCE * seconds, outcomes)
            if death:
                os.kill(child, signal.SIGKILL)
        finally:
            os.close(receive)
            _, status = os.waitpid(child, 0)
        if death is None and status == 0 and len(outcomes) == len(jobs):
            return outcomes
        said.seek(0)
        # a child that dies on its way out has told everything: its last job is asked again, alone
        return [*outcomes[: len(jobs) - 1], Death(death or _reason(status, said.read()))]


def _serve(jobs: Sequence[T], work: Callable[[T], R], seconds: float, send: int, said: int) -> None:
    """The child: do the jobs, send each result, and leave without the parent's exit handlers."""
    status = 1
    try:
        os.dup2(said, 1)
        os.dup2(said, 2)
        gc.disable()
        faulthandler.disable()  # the parent tells of a death; pytest's handler would print sixty lines
        for job in jobs:
            _limit(seconds)
            try:
                body = pickle.dumps((True, work(job)))
            except (Exception, SystemExit):
                body = pickle.dumps((False, traceback.format_exc()))
            os.write(send, len(body).to_bytes(8, "little"))
            _write_all(send, body)
        status = 0
    finally:
        os._exit(status)


def _limit(seconds: float) -> None:
    """Have the kernel end this process after so many more seconds of computing: it counts them whatever else runs."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), hard))


def _write_all(descriptor: int, body: bytes) -> None:
    view = memoryview(body)
    while view:
        view = view[os.write(descriptor, view) :]


def _read(descriptor: int, count: int, deadline: float) -> bytes | None:
    """Read exactly `count` bytes, or fewer at the end of the stream; None when the time is over."""
    body = b""
    while len(body) < count:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        chunk = os.read(descriptor, count - len(body))
        if not chunk:
            break
        body += chunk
    return body


def _collect(receive: int, count: int, seconds: float, outcomes: list[Outcome[R]]) -> str | None:
    """Read results until the child has sent all or stops; return a reason if it hangs."""
    while len(outcomes) < count:
        deadline = time.monotonic() + seconds
        head = _read(receive, 8, deadline)
        body = _read(receive, int.from_bytes(head, "little"), deadline) if head is not None and len(head) == 8 else head
        if body is None:
            return f"hangs: no result after {seconds:.0f} s"
        if head is None or len(head) < 8 or len(body) < int.from_bytes(head, "little"):
            return None
        succeeded, value = pickle.loads(body)
        outcomes.append(Done(value) if succeeded else Raised(value))
    return None


def _signal(number: int) -> str:
    """A signal's name, and of the one that `_limit` asks for what it means."""
    name = signal.Signals(number).name
    return f"hangs: {name}" if number == signal.SIGXCPU else name


def _reason(status: int, said: bytes) -> str:
    """Name a child's end, with the last line that it printed, such as the allocator's complaint."""
    code = os.waitstatus_to_exitcode(status)
    ended = _signal(-code) if code < 0 else f"exit status {code}"
    lines = [
        line for line in said.decode(errors="replace").splitlines() if line.strip() and not line.startswith("USDT")
    ]
    return f"{ended}: {lines[-1][:200]}" if lines else ended


class Child(Generic[T, R]):
    """A child that does one job after another, for a caller that chooses the next by what the last came to.

    It knows what the parent knew at its first job; jobs and results are pickled. What is found in it may be the doing of an
    earlier job: `run_isolated` tells.
    """

    def __init__(self, work: Callable[[T], R], seconds: float = HANG_SECONDS) -> None:
        self._work, self._seconds = work, seconds
        self._process: multiprocessing.process.BaseProcess | None = None

    def do(self, job: T) -> Outcome[R]:
        if self._process is None:
            self._start()
        assert self._process is not None
        try:
            self._ask.send(job)
            if not self._ask.poll(PATIENCE * self._seconds):
                self.close()
                return Death(f"hangs: no result after {PATIENCE * self._seconds:.0f} s")
            succeeded, value = self._ask.recv()
        except (EOFError, OSError):
            process = self._process
            self.close()
            code = process.exitcode or 0
            return Death(_signal(-code) if code < 0 else f"exit status {code}")
        return Done(value) if succeeded else Raised(value)

    def close(self) -> None:
        """End the child, if there is one; the next job gets a new one."""
        if self._process is not None:
            self._ask.close()
            self._process.join(1)
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        gc.freeze()
        context = multiprocessing.get_context("fork")
        self._ask, answer = context.Pipe()
        self._process = context.Process(target=_obey, args=(answer, self._ask, self._work, self._seconds), daemon=True)
        self._process.start()
        answer.close()


def _obey(answer: Connection, parents: Connection, work: Callable[[T], R], seconds: float) -> None:
    """The child: take jobs until the parent hangs up."""
    parents.close()
    faulthandler.disable()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    while True:
        try:
            job = answer.recv()
        except EOFError:
            os._exit(0)
        _limit(seconds)
        try:
            answer.send((True, work(job)))
        except (Exception, SystemExit):
            answer.send((False, traceback.format_exc()))
