"""run_repeatedly.py reports every difference between rows, failed invocations and missing rows."""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import run_repeatedly
from run_repeatedly import CONDITIONS, Condition, command, differences

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


def test_every_invocation_has_its_own_order_and_condition() -> None:
    commands = [command("fbgemm", number, Path("rows.jsonl")) for number in range(2 * len(CONDITIONS))]
    assert len({tuple(arguments) for arguments in commands}) == 2 * len(CONDITIONS)
    workers = {arguments[arguments.index("-n") + 1] for arguments in commands}
    assert workers == {"0", "1", "2", "4"}
    limits = [arguments[arguments.index("--isa") + 1] for arguments in commands if "--isa" in arguments]
    assert limits == ["avx2", "avx512f"] * 2
    assert sum("--no-shortcuts" in arguments for arguments in commands) == 2


def test_an_invocation_is_executed_under_its_condition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = (
        Condition("a variable", variables={"OF_A_CONDITION": "1"}),
        Condition("spaces", copied="with spaces"),
        Condition("read-only", copied="read-only", read_only=True),
        Condition("busy", beside=True),
    )
    told = (
        "import os; print(os.getenv('OF_A_CONDITION'), os.geteuid(), os.access('tests/lies.py', os.W_OK), os.getcwd())"
    )
    started: list[int] = []

    def busy(count: int) -> AbstractContextManager[None]:
        started.append(count)
        return nullcontext()

    monkeypatch.setattr(run_repeatedly, "CONDITIONS", conditions)
    monkeypatch.setattr(run_repeatedly, "command", lambda *_: [sys.executable, "-c", told])
    monkeypatch.setattr(run_repeatedly, "busy", busy)
    outputs = [
        run_repeatedly.execute("fbgemm", number, tmp_path / "rows.jsonl", ()).stdout.split(maxsplit=3)
        for number in range(4)
    ]
    user = str(os.geteuid())
    assert outputs[0] == ["1", user, "True", f"{run_repeatedly.ROOT}\n"]
    assert outputs[1][:3] == ["None", user, "True"]
    assert outputs[1][3].endswith("/with spaces\n")
    assert outputs[2][0:3:2] == ["None", "False"]
    assert outputs[2][1] != "0"
    assert outputs[3] == ["None", *outputs[0][1:]]
    assert started == [0, 0, 0, os.cpu_count()]


def test_rows_are_compared_with_those_of_the_same_instruction_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_repeatedly, "CONDITIONS", (Condition("native"), Condition("--isa avx2", isa="avx2")))
    arguments = ["--backend", "fbgemm", "--keep", str(tmp_path), "--times"]
    for times, ties in ((1, 1), (2, 2), (4, 2)):
        monkeypatch.setattr(run_repeatedly, "command", invocation(0, replace(ROW, ties=ties)))
        assert run_repeatedly.main([*arguments, str(times)]) == (times == 4)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"{ROW.id}: ties: 1, then 2"
    assert "| fbgemm | native | 2 | 0 | 1 | 1 |" in lines
    assert "| fbgemm | --isa avx2 | 2 | 0 | 1 | 0 |" in lines


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


def test_an_invocation_that_failed_is_counted_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--backend", "fbgemm", "--keep", str(tmp_path), "--times", "1"]
    monkeypatch.setattr(run_repeatedly, "command", invocation(1, ROW))
    assert run_repeatedly.main(arguments) == 1
    assert "| fbgemm | 2 workers | 1 | 1 | 1 | 0 |" in capsys.readouterr().out
    monkeypatch.setattr(run_repeatedly, "command", invocation(0, ROW))
    assert run_repeatedly.main(arguments) == 0
