"""Batches of runs become rows in order, whatever becomes of the process of a run."""

import faulthandler
import os
import signal

import pytest
import torch
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig

from conformance.cases.claims import BackendClaims, claims_of
from conformance.cases.runs import Run, describe
from conformance.checks.evidence import Evidence
from conformance.checks.judge import Judge
from conformance.engines.registry import engine as real_engine
from conformance.execution import batch
from conformance.execution.batch import Judged, judge_runs
from conformance.host.isolation import Death, Raised
from conformance.models import fx
from conformance.results.findings.stages import BEYOND, DEGENERATE, VIEWS, Crashes
from conformance.results.profiles import ASKED_FOR, EXACT
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict
from tests.runs_by_id import run

RELU = "fbgemm/nn.ReLU/static-quint8/ptq/default/exact@fbgemm"
LINEAR = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@fbgemm"
SIGMOID = "fbgemm/nn.Sigmoid/static-quint8/ptq/default/exact@fbgemm"


def rows_of(outcomes: list[Judged | Raised]) -> list[Row]:
    assert not any(isinstance(outcome, Raised) for outcome in outcomes), outcomes
    return [outcome.row for outcome in outcomes if isinstance(outcome, Judged)]


def test_a_run_becomes_a_row_with_every_check() -> None:
    if real_engine("fbgemm").unavailable():
        pytest.skip("no fbgemm here")
    (row,) = rows_of(judge_runs([run(LINEAR)], lambda name: None))
    assert (row.id, row.verdict, row.detail) == (LINEAR, "conforms", "")
    assert (row.backend, row.pattern, row.dtype_config) == ("fbgemm", "nn.Linear", "static-quint8")
    assert (row.flow, row.variant, row.profile, row.engine) == ("ptq", "default", "exact", "fbgemm")
    assert row.checks == dict.fromkeys((*EXACT.checks, *ASKED_FOR), "pass")
    assert row.kernels == ("quantized.linear",)
    assert (row.steps_max, row.mismatched, row.known) == (0, 0, None)
    assert row.total == 32 * (1 + len({**DEGENERATE, **VIEWS, **BEYOND}))
    assert row.sqnr_db is not None
    assert row.sqnr_db > 20


def test_a_run_has_the_same_row_every_time_but_for_its_seconds() -> None:
    if real_engine("fbgemm").unavailable():
        pytest.skip("no fbgemm here")
    first, second = (rows_of(judge_runs([run(LINEAR)], lambda name: None))[0] for _ in range(2))
    assert {**first.to_json(), "seconds": 0} == {**second.to_json(), "seconds": 0}


def test_runs_of_a_batch_have_the_rows_that_they_have_alone() -> None:
    several = [run(LINEAR), run(LINEAR.replace("@fbgemm", "@x86")), run(RELU), run(LINEAR)]
    if any(real_engine(case.engine).unavailable() for case in several):
        pytest.skip("no fbgemm here")
    together = rows_of(judge_runs(several, lambda name: None))
    apart = [row for case in several for row in rows_of(judge_runs([case], lambda name: None))]
    assert [{**row.to_json(), "seconds": 0} for row in together] == [{**row.to_json(), "seconds": 0} for row in apart]


def conforming(case: Run) -> Row:
    return Row(**describe(case), verdict=Verdict.CONFORMS)


def test_an_engine_that_is_missing_gives_unavailable_rows_in_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Judge, "judged", lambda self, case: (Evidence(case), conforming(case)))
    batch = [run(RELU), run(RELU.replace("@fbgemm", "@x86")), run(SIGMOID)]
    rows = rows_of(judge_runs(batch, {"x86": "not built"}.get))
    assert [(row.id, row.verdict, row.detail) for row in rows] == [
        (RELU, "conforms", ""),
        (batch[1].id, "unavailable", "engine x86: not built"),
        (SIGMOID, "conforms", ""),
    ]


def test_a_death_is_a_row_and_an_exception_of_the_suite_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(self: Judge, case: Run) -> tuple[Evidence, Row]:
        import faulthandler

        faulthandler.disable()
        if case.id == RELU:
            os.kill(os.getpid(), signal.SIGSEGV)
        if case.id == SIGMOID:
            raise LookupError("a bug of the suite")
        return Evidence(case), conforming(case)

    monkeypatch.setattr(Judge, "judged", judged)
    conforms, crashes, raised = judge_runs([run(LINEAR), run(RELU), run(SIGMOID)], lambda name: None)
    assert isinstance(conforms, Judged)
    assert conforms.row.verdict == "conforms"
    assert isinstance(crashes, Judged)
    assert crashes.row.verdict == "crashes"
    assert crashes.row.failed == {"crashes"}
    assert "SIGSEGV" in crashes.row.detail
    assert isinstance(raised, Raised)
    assert "LookupError: a bug of the suite" in raised.traceback


def test_a_claim_of_an_unknown_operator_is_unavailable_and_says_how_to_declare_it() -> None:
    entry = BackendPatternConfig(nn.MaxUnpool2d).set_dtype_configs([DTypeConfig(torch.quint8, torch.quint8)])
    config = BackendConfig("vendor").set_backend_pattern_configs([entry])
    (claim,) = claims_of("vendor", config)
    lacking = Run(BackendClaims("vendor", config, ("fbgemm",), (claim,), ""), claim, "ptq", None, "exact", "fbgemm")
    (row,) = rows_of(judge_runs([lacking], lambda name: None))
    assert (row.verdict, row.variant) == ("unavailable", "not-covered")
    assert row.detail.startswith("not covered: no operator 'nn.MaxUnpool2d' in the tables: ")
    assert row.detail.endswith(": declare it with --operators")


def test_the_parent_starts_no_threads_of_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(fx, "calibrate", lambda *_: seen.append(torch._C._get_mkldnn_enabled()))
    batch.warm_up.__wrapped__()
    assert seen == [False]
    assert torch._C._get_mkldnn_enabled()


def test_an_allocation_that_fails_is_a_damaged_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    def allocation_fails(*_: object) -> None:
        faulthandler.disable()
        raise MemoryError

    monkeypatch.setattr("conformance.checks.stages.execute", allocation_fails)
    (judged,) = judge_runs([run(RELU)], lambda name: None)
    assert isinstance(judged, Judged)
    assert judged.row.failed == {"crashes"}
    assert "memory fault" in judged.row.detail


@pytest.mark.parametrize("reason", ["SIGSEGV", "SIGBUS (core dumped)", "SIGABRT", "hangs for 60 s"])
def test_a_memory_fault_is_one_finding_however_the_process_ends(reason: str) -> None:
    row = batch.crashed_row(run(RELU), Death(reason))
    assert row.detail == "crashes: memory fault (SIGSEGV, SIGBUS, SIGABRT) or hang"
    assert row.findings == (Crashes("crashes", "memory fault (SIGSEGV, SIGBUS, SIGABRT) or hang"),)


def test_another_death_is_a_finding_with_its_reason() -> None:
    row = batch.crashed_row(run(RELU), Death("SIGILL"))
    assert (row.verdict, row.detail) == ("crashes", "crashes: SIGILL")
    assert row.failed == {"crashes"}
    assert row.findings == (Crashes("crashes", "SIGILL"),)
