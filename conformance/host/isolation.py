"""Isolation in forked children: the crash or hang of a kernel costs one row.

A child takes a batch of jobs. If it dies, the job that it died on is repeated alone in another child. If that child dies too,
this job crashes; the results before it are kept, and another child continues after it. If it survives, an earlier job has
damaged the memory of the first child: all jobs up to this one are repeated, each alone, and a job that dies alone crashes.
A death that may come from outside, such as that by the kernel when memory is short, counts only if the job dies alone twice.
The parent must not have computed with more than one thread before it forks: a child has none of the parent's threads.
"""

import faulthandler
import gc
import math
import multiprocessing
import os
import pickle
import resource
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

HANG_SECONDS = 60.0
"""CPU seconds that a job may take. A run takes some 50 ms, a second under emulation: a job over this limit hangs."""

PATIENCE = 3.0
"""Wall-clock seconds for each CPU second that a job may take, because a busy host slows every job."""

DEADLOCK_SECONDS = 10
"""Seconds in a row after which a child that sleeps and uses no CPU is deadlocked, as an allocator may be while it reports a
damaged heap. A child that waits for a CPU does not sleep."""


FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
"""Signals that another process or the kernel sends. Kernels cause others; whether they do may be chance, so one is enough."""


@dataclass(frozen=True)
class Death:
    """The outcome of a job that ended its child by a signal, an exit or a hang."""

    reason: str

    @property
    def from_outside(self) -> bool:
        """Whether the job may have no part in it."""
        return self.reason.partition(":")[0] in FROM_OUTSIDE


@dataclass(frozen=True)
class Done(Generic[R]):
    """The outcome of a job that returned a value."""

    value: R


@dataclass(frozen=True)
class Raised:
    """The outcome of a job that raised: an error of the suite, neither of the engine nor a crash."""

    traceback: str


Outcome = Done[R] | Death | Raised


def run_isolated(jobs: Sequence[T], work: Callable[[T], R], seconds: float = HANG_SECONDS) -> list[Outcome[R]]:
    """Call `work` on every job in children and return the outcomes in order. A job may take `seconds` of CPU time."""
    outcomes: list[Outcome[R]] = []
    while len(outcomes) < len(jobs):
        rest = jobs[len(outcomes) :]
        batch = _in_child(rest, work, seconds)
        if isinstance(batch[-1], Death) and len(batch) == 1:
            batch = [_confirmed(rest[0], batch[0], work, seconds)]
        elif isinstance(batch[-1], Death):
            alone = _alone(rest[len(batch) - 1], work, seconds)
            if isinstance(alone, Death):
                batch[-1] = alone
            else:
                # an earlier job caused the death: each alone shows which
                batch = [_alone(job, work, seconds) for job in rest[: len(batch)]]
        outcomes += batch
    return outcomes


def _alone(job: T, work: Callable[[T], R], seconds: float) -> Outcome[R]:
    """Do a job in a child of its own."""
    (outcome,) = _in_child([job], work, seconds)
    return _confirmed(job, outcome, work, seconds)


def _confirmed(job: T, outcome: Outcome[R], work: Callable[[T], R], seconds: float) -> Outcome[R]:
    """The outcome of a job that was done alone, of a second time if it died of what may come from outside."""
    if isinstance(outcome, Death) and outcome.from_outside:
        (outcome,) = _in_child([job], work, seconds)
    return outcome


def _in_child(jobs: Sequence[T], work: Callable[[T], R], seconds: float) -> list[Outcome[R]]:
    """Do the jobs in one child. The last outcome is a Death if the child ended before it had done all jobs."""
    with tempfile.TemporaryFile() as output:
        receive, send = multiprocessing.Pipe(duplex=False)
        child, death = 0, None
        outcomes: list[Outcome[R]] = []
        try:
            with interrupts_held() as handler:
                if (child := os.fork()) == 0:
                    _serve(jobs, work, seconds, (receive, send), output.fileno(), handler)
                send.close()
            death = _collect(receive, _Watch(child, PATIENCE * seconds), len(jobs), outcomes)
        except BaseException:
            death = "interrupted"
            raise
        finally:
            receive.close()
            if death and child:
                os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1] if child else 0
        if death is None and status == 0 and len(outcomes) == len(jobs):
            return outcomes
        output.seek(0)
        # a child may die after it has sent every result: its last job then counts as the one that died
        return [*outcomes[: len(jobs) - 1], Death(death or _reason(status, output.read()))]


Handler = Callable[[int, FrameType | None], Any] | int | None


@contextmanager
def interrupts_held() -> Iterator[Handler]:
    """Have Ctrl-C wait for the end of this scope, and yield its handler, which a process that is forked here has to restore.

    Python calls functions when it forks, such as one of `logging`, and loses their exceptions: a KeyboardInterrupt would not
    end the invocation. Handlers are called in the main thread alone.
    """
    former = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():
        yield former
        return
    held: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield former
    finally:
        signal.signal(signal.SIGINT, former)
        if held:
            signal.raise_signal(signal.SIGINT)


def _begin(output: int, interrupted: Handler) -> None:
    """Prepare a child: restore the handler of Ctrl-C, and redirect what is printed."""
    signal.signal(signal.SIGINT, interrupted)
    os.dup2(output, 1)
    os.dup2(output, 2)
    gc.freeze()  # a collection would visit the parent's objects and so copy their pages
    faulthandler.disable()  # the parent reports a death; pytest's handler would print sixty lines


def _serve(
    jobs: Sequence[T],
    work: Callable[[T], R],
    seconds: float,
    ends: tuple[Connection, Connection],
    output: int,
    interrupted: Handler,
) -> None:
    """Do the jobs in the child, send each result, and exit without the parent's exit handlers."""
    status = 1
    try:
        receive, send = ends
        receive.close()
        _begin(output, interrupted)
        gc.disable()
        for job in jobs:
            _limit(seconds)
            try:
                body = pickle.dumps((True, work(job)))
            except (Exception, SystemExit):
                body = pickle.dumps((False, traceback.format_exc()))
            send.send_bytes(body)  # `send` would pickle by torch's functions, which share memory
        status = 0
    finally:
        os._exit(status)


def _limit(seconds: float) -> None:
    """Have the operating system end this process after so many more seconds of CPU time."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), hard))


class _Watch:
    """Decides whether a child hangs: no result within `seconds`, or asleep for `DEADLOCK_SECONDS` without using a CPU."""

    def __init__(self, child: int | None, seconds: float) -> None:
        self.child, self.seconds = child, seconds
        self.start()

    def start(self) -> None:
        """Begin to wait for the next result."""
        self.deadline, self.asleep, self.reason = time.monotonic() + self.seconds, 0, ""
        self.before: tuple[str, ...] | None = None  # read after a second: nearly every result comes sooner

    def hangs(self) -> bool:
        """Called after each second without a result. Sets `reason` if the child hangs."""
        cpu = self._cpu()
        self.asleep = self.asleep + 1 if cpu is not None and cpu == self.before else 0
        self.before = cpu
        if self.asleep >= DEADLOCK_SECONDS:
            self.reason = f"hangs: asleep for {DEADLOCK_SECONDS} s"
        elif time.monotonic() >= self.deadline:
            self.reason = f"hangs: no result after {self.seconds:.0f} s"
        return bool(self.reason)

    def waits(self, connection: Connection) -> bool:
        """Wait for the next result of the child, or for its end. Returns False, with a `reason`, if it hangs."""
        self.start()
        while not connection.poll(1.0):
            if self.hangs():
                return False
        return True

    def _cpu(self) -> tuple[str, ...] | None:
        """The ticks of CPU time that the child and its own children have used; None if a thread of them is running or the
        system does not say."""
        try:
            stats = [(thread / "stat").read_text().rpartition(")")[2].split() for thread in _threads(str(self.child))]
        except OSError:
            return None
        return None if any(fields[0] != "S" for fields in stats) else tuple(" ".join(fields[11:13]) for fields in stats)


def _threads(process: str) -> Iterator[Path]:
    """The folders in /proc of the threads of a process and of its children."""
    for thread in Path("/proc", process, "task").iterdir():
        yield thread
        for child in (thread / "children").read_text().split():
            yield from _threads(child)


def _collect(receive: Connection, watch: _Watch, count: int, outcomes: list[Outcome[R]]) -> str | None:
    """Append outcomes until the child has sent all or ends. Return a reason if it hangs, else None."""
    while len(outcomes) < count:
        if not watch.waits(receive):
            return watch.reason
        try:
            body = receive.recv_bytes()
        except (EOFError, OSError):
            return None
        succeeded, value = pickle.loads(body)
        outcomes.append(Done(value) if succeeded else Raised(value))
    return None


def _signal(number: int) -> str:
    """Return the name of a signal; the one that `_limit` causes is a hang."""
    name = signal.Signals(number).name
    return f"hangs: {name}" if number == signal.SIGXCPU else name


def _reason(status: int, output: bytes) -> str:
    """Describe how a child ended, with the last line that it printed, such as an error of the allocator."""
    code = os.waitstatus_to_exitcode(status)
    end = _signal(-code) if code < 0 else f"exit status {code}"
    lines = [
        line for line in output.decode(errors="replace").splitlines() if line.strip() and not line.startswith("USDT")
    ]
    return f"{end}: {lines[-1][:200]}" if lines else end


class Child(Generic[T, R]):
    """A child that does one job after another, for a caller that chooses each job by the outcome of the last.

    The child is forked at the first job and shares the parent's state of that moment; jobs and results are pickled. An
    earlier job may have caused an outcome: `run_isolated` decides it.
    """

    def __init__(self, work: Callable[[T], R], seconds: float = HANG_SECONDS) -> None:
        self._work, self._seconds = work, seconds
        self._process: multiprocessing.process.BaseProcess | None = None

    def do(self, job: T) -> Outcome[R]:
        """Do a job in the child and return its outcome. After a death the next job gets another child."""
        if self._process is None:
            self._start()
        assert self._process is not None
        try:
            self._connection.send(job)
            watch = _Watch(self._process.pid, PATIENCE * self._seconds)
            if not watch.waits(self._connection):
                self.close()
                return Death(watch.reason)
            succeeded, value = self._connection.recv()
        except (EOFError, OSError):
            process = self._process
            self.close()
            code = process.exitcode or 0
            return Death(_signal(-code) if code < 0 else f"exit status {code}")
        return Done(value) if succeeded else Raised(value)

    def close(self) -> None:
        """End the child, if any. The next job gets another one."""
        if self._process is not None:
            self._connection.close()
            self._process.join(1)
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, childs = context.Pipe()
        with interrupts_held() as handler:
            arguments = (childs, self._connection, self._work, self._seconds, handler)
            self._process = context.Process(target=_work_on_jobs, args=arguments, daemon=True)
            self._process.start()
            childs.close()


def _work_on_jobs(
    own: Connection, parents: Connection, work: Callable[[T], R], seconds: float, interrupted: Handler
) -> None:
    """Do jobs in the child until the parent closes the connection."""
    parents.close()
    _begin(os.open(os.devnull, os.O_WRONLY), interrupted)
    while True:
        try:
            job = own.recv()
        except EOFError:
            os._exit(0)
        _limit(seconds)
        try:
            own.send((True, work(job)))
        except (Exception, SystemExit):
            own.send((False, traceback.format_exc()))
