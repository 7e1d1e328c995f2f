"""Repetition notices whatever is not the same every time."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import run_repeatedly
from run_repeatedly import WORKERS, command, differences

from conformance.results.profiles import CHECKS
from conformance.results.rows import Row, Writer
from conformance.results.verdicts import Verdict

ROW = Row(
    "a/b/c/ptq/d/exact@x86", "a", "b", "c", "ptq", "d", "exact", "x86", Verdict.CONFORMS, dict.fromkeys(CHECKS, "pass")
)


def test_rows_that_differ_in_seconds_only_are_the_same() -> None:
    assert [*differences([ROW], [replace(ROW, seconds=1.0)])] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"verdict": "deviates"}, "verdict: 'conforms', then 'deviates'"),
        ({"checks": {"matched": "fail"}}, f"checks: {ROW.checks}, then {{'matched': 'fail'}}"),
        ({"detail": "other"}, "detail: '', then 'other'"),
        ({"ties": 3}, "ties: None, then 3"),
        ({"kernels": ("aten.add",)}, "kernels: (), then ('aten.add',)"),
    ],
)
def test_whatever_else_differs_is_said(change: dict[str, object], said: str) -> None:
    assert [*differences([ROW], [replace(ROW, **change)])] == [f"{ROW.id}: {said}"]  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "again"), [([ROW], []), ([], [ROW])])
def test_a_row_that_is_missing_is_said(first: list[Row], again: list[Row]) -> None:
    assert [*differences(first, again)] == [f"{ROW.id}: has a row in one invocation and none in another"]


def test_every_invocation_has_an_order_and_workers_of_its_own() -> None:
    commands = [command("fbgemm", number, Path("rows.jsonl")) for number in range(10)]
    assert len({tuple(one) for one in commands}) == 10
    assert {one[one.index("-n") + 1] for one in commands} == set(WORKERS)


def test_an_invocation_that_fails_or_leaves_no_rows_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_repeatedly, "command", lambda *_: ["false"])
    assert run_repeatedly.main(["--times", "1", "--backend", "fbgemm", "--keep", str(tmp_path)]) == 1
    assert "fbgemm, order 0, 2 workers: no rows: exit status 1" in capsys.readouterr().out


def invocation(status: int, row: Row) -> Callable[[str, int, Path], list[str]]:
    """In the place of `command`: what leaves one row and exits with a status."""

    def made(backend: str, number: int, results: Path) -> list[str]:
        writer = Writer(results, {})
        writer.add(row)
        writer.finish({})
        return [sys.executable, "-c", f"raise SystemExit({status})"]

    return made


def test_what_was_interrupted_goes_on_with_the_rows_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--backend", "fbgemm", "--keep", str(tmp_path), "--times"]
    monkeypatch.setattr(run_repeatedly, "command", invocation(0, ROW))
    assert run_repeatedly.main([*arguments, "2"]) == 0
    monkeypatch.setattr(run_repeatedly, "command", invocation(0, replace(ROW, ties=3)))
    assert run_repeatedly.main([*arguments, "2"]) == 0, "nothing was left to run"
    assert run_repeatedly.main([*arguments, "3"]) == 1
    assert "ties: None, then 3" in capsys.readouterr().out


def test_an_invocation_that_failed_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--backend", "fbgemm", "--keep", str(tmp_path), "--times", "1"]
    monkeypatch.setattr(run_repeatedly, "command", invocation(1, ROW))
    assert run_repeatedly.main(arguments) == 1
    monkeypatch.setattr(run_repeatedly, "command", invocation(0, ROW))
    assert run_repeatedly.main(arguments) == 0
