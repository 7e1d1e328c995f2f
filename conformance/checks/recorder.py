"""Recording of stages: their time in torch, and the exceptions of those that fail, which are recorded or end a run."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from conformance.errors import Failure
from conformance.models import build
from conformance.results.findings import Finding
from conformance.results.findings.stages import Raises
from conformance.stopwatch import Stopwatch


@contextmanager
def guarded(watch: Stopwatch, failed: Callable[[BaseException], object]) -> Iterator[None]:
    """Time a block of calls of torch, and pass the exception that it raises to `failed`."""
    try:
        with watch():
            yield
    except MemoryError:
        # models this small never run out of memory: the heap is damaged, and the process would end unpredictably
        os.abort()
    except (Exception, SystemExit) as error:  # any exception of torch is a finding
        failed(error)


class Recorder:
    """Runs stages: times them, and records the exception of each stage that fails by the stage's name."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch
        self.failures: dict[str, Failure] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A stage. If it raises, the stages after it go on without its product."""

        def failed(error: BaseException) -> None:
            self.failures[name] = Failure.of(error)

        with guarded(self.watch, failed):
            yield


@dataclass
class StageFailed(Exception):
    """A stage before a property is tested fails, with these findings of one check, which are those of the run."""

    findings: tuple[Finding, ...]


@contextmanager
def stage(watch: Stopwatch, check: str, name: str) -> Iterator[None]:
    """Time a stage; raise StageFailed if torch raises in it."""

    def failed(error: BaseException) -> None:
        failure = Failure.of(error.args[0] if isinstance(error, build.CannotBeBuilt) else error)
        raise StageFailed((Raises(check, name, failure.exception, failure.message),)) from error

    with guarded(watch, failed):
        yield
