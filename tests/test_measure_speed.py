"""measure_speed.py times torch's own work on each case once, and the whole of judging it."""

import pytest
from measure_speed import Phases, measured, sample, torch_alone

from conformance.cases.claims import backend
from conformance.cases.runs import runs


def test_cases_are_converted_once_and_lowered_on_each_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [run for run in sample("fbgemm", 1) if run.id.startswith("fbgemm/nn.Linear/static-quint8/ptq/default/")]
    assert [run.engine for run in both] == ["fbgemm", "x86"]
    entered = []
    honest = Phases.__call__

    def counted(self: Phases, name: str) -> object:
        entered.append(name)
        return honest(self, name)

    monkeypatch.setattr(Phases, "__call__", counted)
    seconds = measured(both)
    assert entered == ["prepare", "reference", "lower", "execute", "lower", "execute", "judged"]
    assert seconds["runs"] == 2


def test_a_run_in_which_torch_raises_has_no_floor() -> None:
    name = "qnnpack/nn.Conv1d/static-qint8/ptq/default/exact@qnnpack"
    (raising,) = (run for run in runs(backend("qnnpack"), globs=[name]) if run.id == name)
    assert not torch_alone(Phases(), {}, raising)
