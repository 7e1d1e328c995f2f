"""run_repeatedly.py reports every difference between rows, failed invocations and missing rows."""

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


def test_rows_that_differ_only_in_seconds_are_equal() -> None:
    assert [*differences([ROW], [replace(ROW, seconds=1.0)])] == []


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"verdict": "deviates"}, "verdict: 'conforms', then 'deviates'"),
        ({"checks": {"matched": "fail"}}, f"checks: {ROW.checks}, then {{'matched': 'fail'}}"),
        ({"detail": "other"}, "detail: '', then 'other'"),
        ({"ties": 3}, "ties: None, then 3"),
        ({"kernels": ("aten.add",)}, "kernels: (), then ('aten.add',)"),
    ],
)
def test_every_other_difference_is_reported(change: dict[str, object], difference: str) -> None:
    assert [*differences([ROW], [replace(ROW, **change)])] == [f"{ROW.id}: {difference}"]  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "again"), [([ROW], []), ([], [ROW])])
def test_a_missing_row_is_reported(first: list[Row], again: list[Row]) -> None:
    assert [*differences(first, again)] == [f"{ROW.id}: has a row in one invocation and none in another"]


def test_every_invocation_has_its_own_order_and_workers() -> None:
    commands = [command("fbgemm", number, Path("rows.jsonl")) for number in range(10)]
    assert len({tuple(arguments) for arguments in commands}) == 10
    assert {arguments[arguments.index("-n") + 1] for arguments in commands} == set(WORKERS)


def test_an_invocation_without_rows_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_repeatedly, "command", lambda *_: ["false"])
    assert run_repeatedly.main(["--times", "1", "--backend", "fbgemm", "--keep", str(tmp_path)]) == 1
    assert "fbgemm, order 0, 2 workers: no rows: exit status 1" in capsys.readouterr().out


def test_an_invocation_may_be_of_selected_runs() -> None:
    selected = command("fbgemm", 0, Path("rows.jsonl"), ["*/pairs@*", "*/codes@*"])
    assert selected[-4:] == ["--case", "*/pairs@*", "--case", "*/codes@*"]
    assert selected[:-4] == command("fbgemm", 0, Path("rows.jsonl"))


def invocation(status: int, row: Row) -> Callable[..., list[str]]:
    """A replacement of `command` whose process exits with a status, after one row is written."""

    def command(backend: str, number: int, results: Path, globs: object) -> list[str]:
        writer = Writer(results, {})
        writer.add(row)
        writer.finish({})
        return [sys.executable, "-c", f"raise SystemExit({status})"]

    return command


def test_an_interrupted_call_is_continued_with_its_rows(
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
