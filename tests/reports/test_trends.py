"""The trend of a history: verdicts by night, and changes since the night before."""

import json
from pathlib import Path

import pytest
from invocation import CONFORMS, DIES, HOSTILE, WRONG, full_row, row, store_night

pytest.importorskip("duckdb", reason="`tox -e history` has it")

from conformance.__main__ import main
from conformance.reports.nights import Filter
from conformance.reports.trends import Changes, trend

Capture = pytest.CaptureFixture[str]
ELU, RELU = row("nn.ELU"), row("nn.ReLU", fails=["numerics"])


@pytest.fixture
def history(tmp_path: Path) -> Path:
    folder = tmp_path / "history"
    away = row("nn.GRU", verdict="unavailable", detail="not built")
    store_night(folder, 1, [CONFORMS, full_row(), away, ELU], git="a")
    store_night(folder, 2, [RELU, row("nn.Linear"), DIES], git="b")
    return folder


def test_runs_are_counted_by_verdict_and_by_what_the_ledger_knows(history: Path) -> None:
    first, second = trend(str(history), Filter())
    assert (first.date, first.revision, first.runs) == ("2026-01-01", "a", 4)
    assert first.verdicts == {
        "conforms": 2,
        "deviates": 1,
        "undefined": 0,
        "crashes": 0,
        "unjudged": 0,
        "unavailable": 1,
    }
    assert (first.known, first.unexplained) == (1, 0)
    assert second.verdicts == {
        "conforms": 1,
        "deviates": 1,
        "undefined": 0,
        "crashes": 1,
        "unjudged": 0,
        "unavailable": 0,
    }
    assert (second.known, second.unexplained) == (0, 2)


def test_changes_are_counted_since_the_night_before(history: Path) -> None:
    first, second = trend(str(history), Filter())
    assert first.changes is None
    assert second.changes == Changes("2026-01-01", "2.13.0", newly_deviating=2, newly_conforming=1, added=0, removed=1)
    store_night(history, 3, [RELU, DIES, row("nn.Linear"), ELU], git="b")
    assert trend(str(history), Filter())[2].changes == Changes("2026-01-02", "2.13.0", 0, 0, added=1, removed=0)


def test_nothing_in_common_is_everything_added_and_removed(history: Path) -> None:
    store_night(history, 3, [ELU])
    assert trend(str(history), Filter())[2].changes == Changes("2026-01-02", "2.13.0", 0, 0, added=1, removed=3)


def test_another_torch_of_the_same_night_is_a_night_of_its_own(history: Path) -> None:
    store_night(history, 2, [WRONG], torch="2.14.0")
    store_night(history, 3, [row("nn.Linear")], torch="2.14.0")
    found = trend(str(history), Filter())
    assert [(counts.date[-1], counts.torch) for counts in found] == [
        ("1", "2.13.0"), ("2", "2.13.0"), ("2", "2.14.0"), ("3", "2.14.0"),
    ]  # fmt: skip
    assert found[2].changes == Changes("2026-01-01", "2.13.0", 0, 0, added=0, removed=3)
    assert found[3].changes == Changes("2026-01-02", "2.14.0", 0, newly_conforming=1, added=0, removed=0)


def test_nights_are_by_backend_platform_and_date(history: Path) -> None:
    store_night(history, 1, [row("nn.ELU", backend="onednn", engine="onednn")], isa="avx512")
    store_night(history, 1, [CONFORMS], arch="aarch64", isa="aarch64")
    assert [(c.backend, c.platform, c.date) for c in trend(str(history), Filter())] == [
        ("fbgemm", "aarch64", "2026-01-01"),
        ("fbgemm", "x86_64 avx2", "2026-01-01"),
        ("fbgemm", "x86_64 avx2", "2026-01-02"),
        ("onednn", "x86_64 avx512", "2026-01-01"),
    ]


def test_text_is_a_table_in_columns(history: Path, capsys: Capture) -> None:
    assert main(["trend", "--history", str(history)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "night       backend  platform     torch   runs  conforms  deviates  undefined  crashes  unjudged  unavailable"
        "  known  unexplained  newly deviating  newly conforming  added  removed",
        "2026-01-01  fbgemm   x86_64 avx2  2.13.0     4         2         1          0        0         0            1"
        "      1            0                –                 –      –        –",
        "2026-01-02  fbgemm   x86_64 avx2  2.13.0     3         1         1          0        1         0            0"
        "      0            2                2                 1      0        1",
    ]


def test_markdown_is_a_table(history: Path, capsys: Capture) -> None:
    assert main(["trend", "--history", str(history), "--format", "markdown", "--to", "2026-01-01"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| night | backend | platform | torch | runs | conforms | deviates | undefined | crashes | unjudged | unavailable"
        " | known | unexplained | newly deviating | newly conforming | added | removed |",
        "| --- | --- | --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
        "| 2026-01-01 | fbgemm | x86_64 avx2 | 2&#46;13.0 | 4 | 2 | 1 | 0 | 0 | 0 | 1 | 1 | 0 | – | – | – | – |",
    ]


def test_json_has_every_figure(history: Path, capsys: Capture) -> None:
    assert main(["trend", "--history", str(history), "--format", "json", "--engine", "fbgemm"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["changes"] is None
    assert second == {
        "date": "2026-01-02", "torch": "2.13.0", "arch": "x86_64", "isa": "avx2", "backend": "fbgemm", "revision": "b",
        "runs": 3,
            "verdicts": {"conforms": 1, "deviates": 1, "undefined": 0, "crashes": 1, "unjudged": 0, "unavailable": 0},
            "known": 0,
        "unexplained": 2, "changes": {
            "date": "2026-01-01", "torch": "2.13.0", "newly_deviating": 2, "newly_conforming": 1, "added": 0, "removed": 1,
        },
    }  # fmt: skip


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_hostile_text_stays_in_its_line(form: str, tmp_path: Path, capsys: Capture) -> None:
    store_night(tmp_path / "history", 1, [CONFORMS], isa=HOSTILE, arch=HOSTILE[:40], torch=HOSTILE[-60:])
    assert main(["trend", "--history", str(tmp_path / "history"), "--format", form]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == (2 if form == "text" else 3)
    assert "\x1b" not in out
    assert form == "text" or "<script>" not in out
