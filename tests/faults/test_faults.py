"""Every fault of the catalogue raises exactly the alarms that the catalogue states."""

from pathlib import Path

import pytest

from tests.saturation import VNNI

from . import table
from .catalogue import EVERY, FAULTS, SURVIVORS
from .fault import Fault, alarms_of, find_run


def parameters(faults: list[Fault]) -> list[object]:
    return [pytest.param(fault, id=fault.id) for fault in faults]


@pytest.mark.parametrize("engine", sorted({name.rpartition("@")[2] for fault in FAULTS for name in fault.runs}))
def test_without_a_fault_every_run_agrees_with_the_ledger(engine: str) -> None:
    names = {name for fault in (*FAULTS, *SURVIVORS) for name in fault.runs if name.endswith(f"@{engine}")}
    runs = [run for name in sorted(names) if (run := find_run(name)) is not None]
    unexpected = [run.id for run in runs if alarms_of([run])] if alarms_of(runs) else []
    assert not unexpected


@pytest.mark.parametrize("fault", parameters(FAULTS))
def test_a_fault_is_caught(fault: Fault, tmp_path: Path) -> None:
    if not VNNI and any(name.endswith("@onednn") for name in fault.runs):
        pytest.skip("without VNNI runs on oneDNN deviate by themselves")
    alarms = fault.alarms(tmp_path)
    assert alarms, "nothing notices it"
    assert sorted(alarms) == sorted(fault.caught_by)


@pytest.mark.xfail(reason="nothing notices it", strict=True)
@pytest.mark.parametrize("fault", parameters(SURVIVORS))
def test_a_fault_that_survives_is_caught(fault: Fault, tmp_path: Path) -> None:
    assert fault.alarms(tmp_path)


def test_the_ids_of_faults_are_unique() -> None:
    assert len({fault.id for fault in EVERY}) == len(EVERY)


def test_the_published_table_agrees_with_the_catalogue() -> None:
    assert table.PATH.read_text(encoding="utf-8") == table.text(), "run `python -m tests.faults.table`"
