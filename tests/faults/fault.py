"""A fault: what it does, what has to notice it, and how a run with it is held to goldens and ledger as any other run is."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conformance.cases.claims import backend
from conformance.cases.runs import Run
from conformance.cases.runs import runs as runs_of
from conformance.engines import availability
from conformance.execution import batch
from conformance.execution.batch import judge_runs
from conformance.goldens.store import Store
from conformance.host.isolation import Raised
from conformance.results.ledger import Entry, judge
from conformance.results.rows import Row
from conformance.selection import Selection

SELECTION = Selection()
"""The goldens, the ledger and the host that every run is held to: those of an invocation without options."""

Alarms = frozenset[str]
"""What goes off: checks by their names, `crashes`, and

`golden`: a run whose golden cannot be used, or `conformance golden check`
`parity`: the config is not torch's own
`ledger`: an entry that cannot be read, or that no run matches
`rows`: a rows file that cannot be read
`suite`: the suite itself raises on a run
"""


@dataclass(frozen=True)
class Fault:
    """One fault. `alarms` puts it in, runs what could notice, and returns what goes off; it is given a folder to write to.
    `runs` are the ids of the runs that are fine without it. `survives` says why nothing goes off, where nothing does."""

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
        """What the catalogue says that goes off."""
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
    """The id of a run; engines of their backend's name need not be said."""
    return f"{backend}/{pattern}/{dtypes}/{flow}/{variant}/{profile}@{engine or backend}"


def found(name: str) -> Run | None:
    """The run of an id, if a registered backend has one: a new one, since a run keeps its recipe."""
    registered, pattern = backend(name.split("/")[0]), name.split("/")[1]
    claims = tuple(claim for claim in registered.claims if claim.pattern == pattern)
    every = runs_of(replace(registered, claims=claims), [name.rpartition("@")[2]])
    return next((run for run in every if run.id == name), None)


def run(name: str) -> Run:
    """The run of an id. Raises KeyError if there is none."""
    one = found(name)
    if one is None:
        raise KeyError(name)
    return one


@cache
def unavailable(engine: str) -> str | None:
    return availability.probe(engine)


def ledger() -> tuple[Entry, ...]:
    return SELECTION.entries


def unexpected(row: Row, entries: Iterable[Entry]) -> Alarms:
    """The checks in which a row is not what the ledger says: unlisted ones that fail, listed ones that do not."""
    held = judge(row, entries, SELECTION.host)
    listed = frozenset(name for entry in held.entries for name in entry.check)
    assert held.expected is (row.verdict == "unavailable" or row.failed == listed)
    return Alarms() if held.expected else row.failed ^ listed


def alarms_of(runs: Sequence[Run], store: Store | None = None) -> Alarms:
    """What goes off in these runs. Skips the test if an engine cannot run here."""
    for engine in {run.engine for run in runs}:
        if (reason := unavailable(engine)) is not None:
            pytest.skip(f"{engine}: {reason}")
    batch.warm_up()
    found: set[str] = set()
    for outcome in judge_runs(runs, unavailable, store or SELECTION.store):
        if isinstance(outcome, Raised):
            found.add("suite")
            continue
        found |= unexpected(outcome.row, ledger()) | ({"golden"} if outcome.unusable else set())
    return Alarms(found)


@dataclass(frozen=True)
class Instead:
    """Something of a module replaced by what `lie` makes of it; children forked meanwhile have it too."""

    owner: Any
    attribute: str
    lie: Callable[[Any], Any]

    @contextmanager
    def put_in(self) -> Iterator[None]:
        honest = getattr(self.owner, self.attribute)
        setattr(self.owner, self.attribute, self.lie(honest))
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, honest)


@contextmanager
def all_of(contexts: Iterable[AbstractContextManager[object]]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def told(group: str, name: str, lies: Sequence[Instead], runs: Sequence[str], caught: str, survives: str = "") -> Fault:
    """A fault of code that runs go through."""

    def alarms(folder: Path) -> Alarms:
        subjects = [run(name) for name in runs]
        batch.warm_up()  # honestly
        with all_of(lie.put_in() for lie in lies):
            return alarms_of(subjects)

    return Fault(group, name, caught, alarms, tuple(runs), survives)
