"""One pool of work for runs, laws, constraints and searches: the unit of each test, and units handed out largest first."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from conformance.results.estimates import ALONE, LEDGER, OTHER, SEARCH

from .selecting import Selecting

if TYPE_CHECKING:
    from conformance.cases.runs import Run
    from conformance.execution.units import Unit
    from conformance.selection import Selection

TOGETHER = {"test_ledger_entry": LEDGER}
"""Tests of which all instances are one unit, with its seconds: they share what is computed for the first one."""

BY_ENGINE = {"test_drawn_cases": SEARCH}
"""Tests of which the instances that differ in the engine are one unit, with the seconds of each: engines share samples."""


DIVISION = "conformance_division"
"""What xdist's controller tells its workers: the path of the file with the run ids of each unit."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[Pooling.KEY] = pooling = Pooling(config)
    config.pluginmanager.register(pooling, "conformance-pooling")


class Pooling:
    """The units of all collected tests."""

    KEY = pytest.StashKey["Pooling"]()

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.nodeids: Sequence[str] = ()
        self.division: Path | None = None

    @property
    def selection(self) -> "Selection":
        return self.config.stash[Selecting.KEY].selection

    @property
    def workers(self) -> int:
        """The number of processes that run tests; the same in each of them and in the controller."""
        if hasattr(self.config, "workerinput"):
            return int(self.config.workerinput["workercount"])
        return len(getattr(self.config.option, "tx", None) or ()) or 1

    def collect(self, nodeids: Iterable[str]) -> None:
        """Take the node ids of all tests, in order of collection."""
        self.nodeids = list(nodeids)

    @cached_property
    def runs(self) -> "Mapping[str, Run]":
        """The run of each collected test of one, by run id, in order of collection."""
        runs = {run.id: run for run in self.selection.runs}
        return {run_id: runs[run_id] for nodeid in self.nodeids if (run_id := run_id_of(nodeid))}

    @cached_property
    def unit_of_run(self) -> "Mapping[str, Unit]":
        """The unit of every collected run, by run id. A run that is known to crash has one of its own."""
        from conformance.execution.units import units

        divided = units([*self.runs.values()], self.selection.crashing, self.workers)
        return {run.id: unit for unit in divided for run in unit.runs}

    @cached_property
    def batches(self) -> "Mapping[str, Sequence[Run]]":
        """The runs of the unit of every collected run, by run id. A worker reads how the controller has divided them, which
        takes longer to find out."""
        told = Path(getattr(self.config, "workerinput", {}).get(DIVISION, ""))
        if not told.is_file():
            return {run_id: unit.runs for run_id, unit in self.unit_of_run.items()}
        batches = [[self.runs[run_id] for run_id in unit] for unit in json.loads(told.read_text(encoding="utf-8"))]
        return {run.id: batch for batch in batches for run in batch}

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where the units of runs will be."""
        if self.config.getoption("dist") != "load":
            return
        with suppress(OSError):  # of a full disk: workers divide runs themselves
            if self.division is None:
                folder = TemporaryDirectory(prefix="conformance-")
                self.config.add_cleanup(folder.cleanup)
                self.division = Path(folder.name, "units.json")
            node.workerinput[DIVISION] = str(self.division)

    def divide(self) -> None:
        """Write the units of runs for the workers, if the disk has room."""
        if self.division is None:
            return
        units = {unit.name: [run.id for run in unit.runs] for unit in self.unit_of_run.values()}
        with suppress(OSError):
            partial = self.division.with_suffix(".partial")
            partial.write_text(json.dumps([*units.values()]), encoding="utf-8")
            partial.replace(self.division)

    def unit_of(self, nodeid: str) -> str:
        """The name of a test's unit."""
        if run_id := run_id_of(nodeid):
            return self.unit_of_run[run_id].name
        function = function_of(nodeid)
        if function in BY_ENGINE:
            return nodeid.rpartition("@")[0]
        return function if function in TOGETHER else nodeid

    @cached_property
    def seconds(self) -> Mapping[str, float]:
        """The expected seconds of each test by node id; of a run those in an earlier rows file, if there is one."""
        from conformance.execution.units import estimated

        instances = Counter(map(function_of, self.nodeids))
        seconds = {}
        for nodeid in self.nodeids:
            function = function_of(nodeid)
            if run_id := run_id_of(nodeid):
                usual = ALONE if run_id in self.selection.crashing else estimated(self.runs[run_id])
                seconds[nodeid] = self.selection.last_time.seconds.get(run_id) or usual
            elif function in TOGETHER:
                seconds[nodeid] = TOGETHER[function] / instances[function]
            else:
                seconds[nodeid] = BY_ENGINE.get(function, OTHER)
        return seconds

    @cached_property
    def seconds_of_unit(self) -> Mapping[str, float]:
        """The expected seconds of each unit, by its name."""
        units: defaultdict[str, float] = defaultdict(float)
        for nodeid, seconds in self.seconds.items():
            units[self.unit_of(nodeid)] += seconds
        return units

    @cached_property
    def turns(self) -> "Mapping[str, int]":
        """The turn of each unit by its name: that of the first of its runs."""
        turns: dict[str, int] = {}
        for run_id, run in self.runs.items():
            name, turn = self.unit_of_run[run_id].name, self.selection.turn(run)
            turns[name] = min(turn, turns.get(name, turn))
        return turns

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The place of each unit of the most telling runs, by its name."""
        return {unit.name: unit.place for unit in self.unit_of_run.values() if unit.place is not None}

    def urgency(self, unit: str) -> tuple[int, float, float]:
        """The order in which units are handed out, the greatest first: by turn, the most telling ones, then by seconds."""
        last = max(self.turns.values(), default=0)
        return -self.turns.get(unit, last), -self.places.get(unit, math.inf), self.seconds_of_unit[unit]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Under `-n`, send all tests of a unit to one worker, and the largest units first."""
        if config.getoption("dist") != "load":
            return None
        from xdist.scheduler import LoadScopeScheduling

        pooling = self

        class LargestFirst(LoadScopeScheduling):  # type: ignore[misc]
            """Hands out units, largest first. Everything else is xdist's."""

            @cached_property
            def positions(self) -> Mapping[str, int]:
                return {nodeid: position for position, nodeid in enumerate(self.collection or ())}

            def schedule(self) -> None:
                if self.collection is None:
                    pooling.divide()
                super().schedule()

            def _split_scope(self, nodeid: str) -> str:
                return pooling.unit_of(nodeid)

            def _assign_work_unit(self, node: Any) -> None:
                name = max(self.workqueue, key=pooling.urgency)
                unit = self.workqueue.pop(name)
                self.assigned_work.setdefault(node, {})[name] = unit
                node.send_runtest_some([self.positions[nodeid] for nodeid, done in unit.items() if not done])

            def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
                nodeid = self.registered_collections[node][item_index]
                units, name = self.assigned_work[node], self._split_scope(nodeid)
                units[name][nodeid] = True
                if all(units[name].values()):
                    del units[name]  # xdist counts what is pending in everything that it keeps
                self._reschedule(node)

            def _reschedule(self, node: Any) -> None:
                # the first test of a unit judges all of it: whoever reports it soon needs another unit
                begun = all(any(unit.values()) for unit in self.assigned_work[node].values())
                if begun and self.workqueue and not node.shutting_down:
                    self._assign_work_unit(node)
                else:
                    super()._reschedule(node)

        return LargestFirst(config, log)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.collect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.collect(ids)


def run_id_of(nodeid: str) -> str:
    """The run id in the node id of a test; empty for a test without a run."""
    run_id = nodeid.partition("::test_run[")[2].removesuffix("]")
    # pytest escapes backslashes and what is not ASCII
    return run_id.encode("latin-1", "backslashreplace").decode("unicode_escape") if "\\" in run_id else run_id


def function_of(nodeid: str) -> str:
    """The name of the function in the node id of a test."""
    return nodeid.partition("::")[2].partition("[")[0]
