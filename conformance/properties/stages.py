"""Stages before a property is tested: a stage that raises is the finding of the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from conformance.checks.recorder import guarded
from conformance.errors import Failure
from conformance.models import build
from conformance.results.findings import Finding
from conformance.results.findings.stages import Raises
from conformance.stopwatch import Stopwatch


@dataclass
class StageFailed(Exception):
    """A stage before the relations fails, with these findings of one check."""

    findings: tuple[Finding, ...]


@contextmanager
def stage(watch: Stopwatch, check: str, name: str) -> Iterator[None]:
    """Time a stage; raise StageFailed if torch raises in it."""

    def failed(error: BaseException) -> None:
        failure = Failure.of(error.args[0] if isinstance(error, build.CannotBeBuilt) else error)
        raise StageFailed((Raises(check, name, failure.exception, failure.message),)) from error

    with guarded(watch, failed):
        yield
