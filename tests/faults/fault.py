"""A fault, the alarms that it must raise, and the comparison of a faulty run with the goldens and the ledger."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conformance.cases.claims import backend
from conformance.cases.runs import Run
from conformance.cases.runs import runs as runs_of
from conformance.checks.likeness import Likeness
from conformance.engines import availability
from conformance.execution import batch
from conformance.execution.batch import judge_runs
from conformance.goldens.store import Store
from conformance.host.isolation import Raised
from conformance.results.known import Entry
from conformance.results.ledger import judge
from conformance.results.profiles import PROFILES
from conformance.results.rows import Row
from conformance.selection import Selection

SELECTION = Selection()
"""Goldens, ledger and host of an invocation without options. Every run is compared with these."""

LIKENESS = Likeness(SELECTION.applying)
"""Which entries of the ledger cover a run by its features."""

Alarms = frozenset[str]
"""The alarms that a fault raises: names of failed checks, `crashes`, and

`golden`: a run cannot use its golden, or `conformance golden check` fails
`parity`: the config differs from torch's own
`ledger`: an entry cannot be read, or matches no run
`rows`: a rows file cannot be read
`suite`: the suite raises on a run
"""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        caught: the expected alarms, separated by spaces.
        alarms: injects the fault, runs everything that could notice it, and returns the alarms. It gets a folder to
            write to.
        runs: ids of the runs, which raise no alarm without the fault.
        survives: why a fault that raises no alarm is not noticed; empty for all others.
    """

    group: str
    name: str
    caught: str
    alarms: Callable[[Path], Alarms]
    runs: tuple[str, ...] = ()
    survives: str = ""

    @property
    def id(self) -> str:
        return f"{self.group}: {self.name}"

    @property
    def caught_by(self) -> Alarms:
        """The alarms that the catalogue states."""
        return frozenset(self.caught.split())


def case(
    pattern: str,
    variant: str = "default",
    dtypes: str = "static-quint8",
    *,
    flow: str = "ptq",
    profile: str = "exact",
    backend: str = "fbgemm",
    engine: str = "",
) -> str:
    """The id of a run. The engine defaults to the one that has the backend's name."""
    return f"{backend}/{pattern}/{dtypes}/{flow}/{variant}/{profile}@{engine or backend}"


def find_run(run_id: str) -> Run | None:
    """A new run of an id, or None if no registered backend has it. Runs cache their recipe, so they are not reused."""
    candidates = runs_of(backend(run_id.split("/")[0]), [run_id.rpartition("@")[2]], [run_id])
    return next((run for run in candidates if run.id == run_id), None)


def run(run_id: str) -> Run:
    """The run of an id. Raises KeyError if there is none."""
    match = find_run(run_id)
    if match is None:
        raise KeyError(run_id)
    return match


@cache
def unavailable(engine: str) -> str | None:
    return availability.probe(engine)


def ledger() -> tuple[Entry, ...]:
    return SELECTION.entries


def unexpected(row: Row, entries: Iterable[Entry]) -> Alarms:
    """The checks in which a row contradicts the ledger: unlisted checks that fail and listed checks that pass."""
    judgement = judge(row, entries, SELECTION.host)
    possible = {*PROFILES[row.profile].checks, "crashes"}
    listed = frozenset(check for entry in judgement.entries for check in entry.check) & possible
    excused = frozenset(check for entry in judgement.entries for check in entry.excused(row)) & possible
    assert judgement.expected is (row.verdict == "unavailable" or (row.failed == listed and row.failed <= excused))
    return Alarms() if judgement.expected else (row.failed ^ listed) | (row.failed - excused)


def alarms_of(runs: Sequence[Run], store: Store | None = None) -> Alarms:
    """The alarms that these runs raise. Skips the test if an engine is unavailable on this host."""
    for engine in {run.engine for run in runs}:
        if (reason := unavailable(engine)) is not None:
            pytest.skip(f"{engine}: {reason}")
    batch.warm_up()
    alarms: set[str] = set()
    for run, outcome in zip(runs, judge_runs(runs, unavailable, store or SELECTION.store), strict=True):
        if isinstance(outcome, Raised):
            alarms.add("suite")
        elif PROFILES[run.profile].by_features:
            expected = LIKENESS.expectation(run, outcome.row, SELECTION.host).expected
            alarms |= set() if expected else outcome.row.failed
        else:
            alarms |= unexpected(outcome.row, ledger()) | ({"golden"} if outcome.unusable else set())
    return Alarms(alarms)


@dataclass(frozen=True)
class Replacement:
    """Replacement of an attribute by `faulty(original)`. Children that are forked while it is applied inherit it."""

    owner: Any
    attribute: str
    faulty: Callable[[Any], Any]

    @contextmanager
    def applied(self) -> Iterator[None]:
        original = getattr(self.owner, self.attribute)
        setattr(self.owner, self.attribute, self.faulty(original))
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, original)


@contextmanager
def all_of(contexts: Iterable[AbstractContextManager[object]]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def code_fault(
    group: str, name: str, replacements: Sequence[Replacement], runs: Sequence[str], caught: str, survives: str = ""
) -> Fault:
    """A fault in the code that runs execute, of the suite or of an engine."""

    def alarms(folder: Path) -> Alarms:
        subjects = [run(run_id) for run_id in runs]
        batch.warm_up()  # before the replacements, which must not affect it
        with all_of(replacement.applied() for replacement in replacements):
            return alarms_of(subjects)

    return Fault(group, name, caught, alarms, tuple(runs), survives)
