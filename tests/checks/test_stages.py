"""Stages record exceptions, share products that do not depend on the engine, and leave evidence that no check changes."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from conformance.cases.runs import Run
from conformance.checks.evidence import Evidence, Front
from conformance.checks.judge import CHECKS, Judge
from conformance.checks.recorder import Recorder
from conformance.engines.registry import engine
from conformance.errors import Failure, brief
from conformance.execution import batch
from conformance.goldens.golden import Golden
from conformance.host.isolation import Done, run_isolated
from conformance.results.findings import detail_of
from conformance.results.profiles import CHECKS as CHECKS_OF_ROWS
from conformance.stopwatch import Stopwatch
from tests.lies import CONV, DYNAMIC, LINEAR, LINEAR_QAT, RELU, SIGMOID
from tests.runs_by_id import run

ADD = "fbgemm/torch.add/static-quint8/ptq/alpha_2/exact@fbgemm"


def test_the_checks_are_those_that_rows_hold_in_the_same_order() -> None:
    assert tuple(CHECKS) == CHECKS_OF_ROWS


@pytest.mark.parametrize(
    ("error", "failure", "text"),
    [
        (ValueError("first\nsecond"), Failure("ValueError", "first"), "ValueError: first"),
        (KeyError("scale"), Failure("KeyError", "'scale'"), "KeyError: 'scale'"),
        (RuntimeError(), Failure("RuntimeError", ""), "RuntimeError: "),
        (RuntimeError("\n  spaces \n"), Failure("RuntimeError", "spaces"), "RuntimeError: spaces"),
        (TypeError("x" * 301), Failure("TypeError", "x" * 300), "TypeError: " + "x" * 300),
    ],
)
def test_a_failure_is_the_type_and_the_first_line_of_an_exception(
    error: Exception, failure: Failure, text: str
) -> None:
    assert Failure.of(error) == failure
    assert failure.text == brief(error) == text


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3)])
def test_the_exception_of_a_stage_is_recorded_by_its_name(error: BaseException) -> None:
    watch = Stopwatch()
    recorder = Recorder(watch)
    with recorder.stage("prepare"):
        raise error
    with recorder.stage("calibrate"):
        pass
    assert recorder.failures == {"prepare": Failure.of(error)}
    assert watch.seconds > 0


def test_an_interrupt_is_no_finding_about_torch() -> None:
    with pytest.raises(KeyboardInterrupt), Recorder(Stopwatch()).stage("execute"):
        raise KeyboardInterrupt


def test_evidence_cannot_be_assigned_to() -> None:
    evidence = Evidence(run(LINEAR))
    parts = (evidence, evidence.front, evidence.back, evidence.expectation)
    for part, field in zip(parts, ("run", "prepared", "execution", "golden"), strict=True):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, field, None)


def snapshot(value: Any) -> Any:
    """The content of evidence as nested tuples and texts, which can be compared."""
    if isinstance(value, Tensor):
        codes = value.int_repr() if value.is_quantized else value
        return (str(value.dtype), str(value.qscheme()) if value.is_quantized else "", repr(codes.tolist()))
    if isinstance(value, nn.Module):
        code = value.code if isinstance(value, GraphModule) else ""
        modules = tuple((name, type(module).__name__, module.training) for name, module in value.named_modules())
        return (code, modules, snapshot(value.state_dict()))
    if isinstance(value, Golden) or (
        dataclasses.is_dataclass(value) and type(value).__module__.startswith("conformance.")
    ):
        return tuple((field.name, snapshot(getattr(value, field.name))) for field in dataclasses.fields(value))
    if isinstance(value, Mapping):
        return tuple((str(name), snapshot(part)) for name, part in value.items())
    if isinstance(value, tuple | list):
        return tuple(map(snapshot, value))
    if isinstance(value, torch.ScriptObject) or callable(value):
        return type(value).__name__
    return repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__


@pytest.mark.parametrize("name", [LINEAR, LINEAR_QAT, DYNAMIC, RELU, SIGMOID, CONV, ADD])
def test_no_check_changes_its_evidence_and_rows_are_rendered_from_findings(name: str) -> None:
    if (reason := engine(run(name).engine).unavailable()) is not None:
        pytest.skip(reason)
    batch.warm_up()

    def work(_: None) -> tuple[list[str], bool, str, str]:
        evidence, row = Judge().judged(run(name))
        before = snapshot(evidence)
        assert "dequantize" in str(before)
        changing = []
        for check in run(name).checks:
            function = CHECKS[check]
            first = function(evidence)
            if snapshot(evidence) != before or function(evidence) != first:
                changing.append(check)
        return changing, bool(row.findings), row.detail, detail_of(row.findings)

    (outcome,) = run_isolated([None], work)
    assert isinstance(outcome, Done), outcome
    changing, deviates, detail, rendered = outcome.value
    assert changing == []
    assert deviates is (name == ADD)
    assert detail == rendered


def test_runs_of_one_case_share_the_front_and_others_do_not() -> None:
    names = [LINEAR, LINEAR.replace("@fbgemm", "@x86"), RELU, LINEAR]
    if any(engine(run(name).engine).unavailable() for name in names):
        pytest.skip("no fbgemm here")
    batch.warm_up()

    def work(_: None) -> list[int]:
        judge = Judge()
        fronts: list[Front] = [judge.evidence(run(name)).front for name in names]
        return [next(number for number, earlier in enumerate(fronts) if earlier is front) for front in fronts]

    (outcome,) = run_isolated([None], work)
    assert isinstance(outcome, Done), outcome
    assert outcome.value == [0, 0, 2, 3]


def test_a_state_that_came_back_whole_under_one_recipe_is_loaded_again_under_another() -> None:
    """quint8's fixed qparams are those that an uncalibrated softmax has: only with qint8's is it seen that they are lost."""
    whole, lost = (run(f"qnnpack/nn.Softmax/static-{dtype}/ptq/default/exact@qnnpack") for dtype in ("quint8", "qint8"))

    def failed(runs: list[Run]) -> list[frozenset[str]]:
        judge = Judge()
        return [judge.row(one)[0].failed for one in runs]

    (outcome,) = run_isolated([[whole, lost]], failed)
    assert isinstance(outcome, Done)
    assert ["stable" in checks for checks in outcome.value] == [False, True]
