"""The pool of work: the order in which units are handed out, and that each is judged once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from invocation import row, write

from conformance.execution.units import FIRST
from conformance.plugin.pooling import DIVISION, Pooling, function_of, run_id_of
from conformance.plugin.selecting import Selecting
from conformance.selection import Selection


@dataclass(eq=False)
class Worker:
    """A worker that records what it is sent."""

    gateway: Any
    sent: list[int] = field(default_factory=list)
    shutting_down: bool = False

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


SELECTED = ["qnnpack/nn.ReLU/*", "qnnpack/nn.Conv2d/*", "qnnpack/nn.LSTM/*"]
SEARCHES = [f"conformance/test_operators.py::test_drawn_cases[qnnpack/{name}@qnnpack]" for name in ("joining", "shape")]
ENTRIES = [f"conformance/test_conformance.py::test_ledger_entry[{name}]" for name in ("a", "b", "c")]
CONFIG = "conformance/test_conformance.py::test_config_is_torchs[qnnpack]"


def pooling(results: Path) -> Pooling:
    """The pool of a selection of runs, with two searches, three ledger entries and a config."""
    selection = Selection(["qnnpack"], globs=SELECTED, results=results)
    selection.__dict__["unavailable"] = {}
    options = {"dist": "load", "tx": ["2*popen"]}
    config: Any = SimpleNamespace(
        stash=pytest.Stash(),
        getoption=options.get,
        getvalue=options.get,
        option=SimpleNamespace(loadscopereorder=False),
    )
    config.stash[Selecting.KEY] = SimpleNamespace(selection=selection)
    pool = Pooling(config)
    runs = [f"conformance/test_conformance.py::test_run[{run.id}]" for run in selection.runs]
    pool.collect([*runs, CONFIG, *ENTRIES, *SEARCHES])
    return pool


def worked_off(pool: Pooling, count: int) -> tuple[list[Worker], list[str]]:
    """Hand out everything to workers that report one test each in turn. Return them, and units in order of assignment."""
    scheduler = pool.pytest_xdist_make_scheduler(pool.config, None)
    scheduler.numnodes = count
    workers = [Worker(SimpleNamespace(id=f"gw{number}")) for number in range(count)]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, pool.nodeids)
    scheduler.schedule()
    order: list[str] = []
    reported = dict.fromkeys(workers, 0)
    while any(reported[worker] < len(worker.sent) for worker in workers):
        for worker in workers:
            if reported[worker] < len(worker.sent):
                # a worker runs a test once it knows the next one, or that there is none
                assert len(worker.sent) - reported[worker] >= 2 or worker.shutting_down
                index = worker.sent[reported[worker]]
                order.append(pool.unit_of(pool.nodeids[index]))
                reported[worker] += 1
                scheduler.mark_test_complete(worker, index)
    assert scheduler.tests_finished
    assert all(worker.shutting_down for worker in workers)
    return workers, [*dict.fromkeys(order)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_test_is_handed_out_once_and_a_unit_to_one_worker(tmp_path: Path, count: int) -> None:
    pool = pooling(tmp_path / "rows.jsonl")
    workers, _ = worked_off(pool, count)
    assert sorted(index for worker in workers for index in worker.sent) == [*range(len(pool.nodeids))]
    units = [{pool.unit_of(pool.nodeids[index]) for index in worker.sent} for worker in workers]
    assert sum(map(len, units)) == len(set().union(*units))


def test_the_most_telling_units_come_first_and_then_the_largest(tmp_path: Path) -> None:
    pool = pooling(tmp_path / "rows.jsonl")
    _, order = worked_off(pool, 1)
    first = [unit for unit in order if unit.startswith(FIRST)]
    assert order[: len(first)] == [f"{FIRST} {number}" for number in range(len(first))]
    rest = order[len(first) :]
    seconds = [pool.seconds_of_unit[unit] for unit in rest]
    assert seconds == sorted(seconds, reverse=True)
    assert rest[:2] == [search.removesuffix("@qnnpack]") for search in SEARCHES]
    assert rest[2] == "test_ledger_entry"
    assert order[-1] == CONFIG


def test_earlier_rows_change_the_order_and_not_the_units(tmp_path: Path) -> None:
    before = pooling(tmp_path / "none.jsonl")
    slow = next(
        run
        for run in before.selection.runs
        if run.id.startswith("qnnpack/nn.ReLU/") and before.unit_of_run[run.id].place is None
    )
    earlier = row("nn.ReLU", seconds=90.0, backend="qnnpack", dtype_config=slow.claim.dtype_config, engine="qnnpack",
                  flow=slow.flow, profile=slow.profile, variant=slow.variant.name if slow.variant else "")  # fmt: skip
    assert earlier.id == slow.id
    pool = pooling(write(tmp_path / "rows.jsonl", [earlier]))
    _, order = worked_off(pool, 1)
    assert next(unit for unit in order if not unit.startswith(FIRST)) == pool.unit_of_run[slow.id].name
    assert {unit.name: [run.id for run in unit.runs] for unit in pool.unit_of_run.values()} == {
        unit.name: [run.id for run in unit.runs] for unit in before.unit_of_run.values()
    }


def test_a_worker_judges_the_units_that_the_controller_has_divided(tmp_path: Path) -> None:
    controller, worker = pooling(tmp_path / "rows.jsonl"), pooling(tmp_path / "rows.jsonl")
    node, cleanups = SimpleNamespace(workerinput={"workercount": 2}), list[Any]()
    vars(controller.config).update(add_cleanup=cleanups.append)
    controller.pytest_configure_node(node)
    vars(worker.config).update(workerinput=node.workerinput)
    worked_off(controller, 2)
    units = {run_id: unit.runs for run_id, unit in controller.unit_of_run.items()}
    assert {run_id: [run.id for run in runs] for run_id, runs in worker.batches.items()} == {
        run_id: [run.id for run in runs] for run_id, runs in units.items()
    }
    assert "unit_of_run" not in vars(worker)
    cleanups[0]()
    assert not Path(node.workerinput[DIVISION]).parent.exists()


def test_a_worker_divides_runs_alike_if_the_controller_could_not_write_units(tmp_path: Path) -> None:
    pool = pooling(tmp_path / "rows.jsonl")
    pool.division = tmp_path / "missing" / "units.json"
    pool.divide()
    vars(pool.config).update(workerinput={"workercount": 2, DIVISION: str(pool.division)})
    assert pool.batches == {run_id: unit.runs for run_id, unit in pool.unit_of_run.items()}


def test_names_in_node_ids() -> None:
    assert run_id_of("conformance/test_laws.py::test_run[a/b[c]/d@e]") == "a/b[c]/d@e"
    assert run_id_of(CONFIG) == ""
    assert function_of(CONFIG) == "test_config_is_torchs"
