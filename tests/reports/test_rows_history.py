"""Histories of rows: each invocation is stored once, in folders by date, torch, architecture and backend."""

import json
import sys
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest
from invocation import CONFORMS, DIES, ROWS, WRONG, full_row, row, store_night, write

pytest.importorskip("duckdb", reason="`tox -e history` has it")

import duckdb

from conformance.__main__ import main
from conformance.errors import UsageError
from conformance.reports import rows_history
from conformance.reports.merge import merge
from conformance.reports.nights import Filter
from conformance.reports.rows_history import store
from conformance.reports.trends import trend

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"


def folders(history: Path) -> list[str]:
    """The folders of a history that have a Parquet file, in order."""
    return sorted(str(path.parent.relative_to(history)) for path in history.rglob("*.parquet"))


def runs(history: Path) -> list[int]:
    """The number of runs of each night."""
    return [counts.runs for counts in trend(str(history), Filter())]


def test_rows_are_in_folders_by_date_torch_architecture_and_backend(tmp_path: Path, history: Path) -> None:
    rows = [CONFORMS, WRONG, row("nn.ELU", backend="onednn", engine="onednn")]
    path = write(tmp_path / "rows.jsonl", rows, {"torch": "2.13.0+cpu"}, finished="2026-01-31T23:59:59+00:00")
    (line,) = store([path], str(history))
    assert line == f"{path}: 3 rows of fbgemm, onednn: 2026-01-31, torch 2.13.0+cpu, x86_64 avx2"
    assert folders(history) == [
        "date=2026-01-31/torch=2.13.0%2Bcpu/arch=x86_64/backend=fbgemm",
        "date=2026-01-31/torch=2.13.0%2Bcpu/arch=x86_64/backend=onednn",
    ]
    assert [counts.torch for counts in trend(str(history), Filter())] == ["2.13.0+cpu"] * 2


def test_every_column_is_stored(history: Path) -> None:
    store_night(history, 1, [full_row()], git="abc")
    with duckdb.connect() as database:
        table = database.execute(f"FROM read_parquet('{history}/*/*/*/*/*.parquet', hive_types_autocast = false)")
        names = [name for name, *_ in table.description]
        values = dict(zip(names, map(str, table.fetchall()[0]), strict=True))
    assert values == {
        "date": "2026-01-01", "torch": "2.13.0", "arch": "x86_64", "backend": "fbgemm", "id": full_row().id,
        "engine": "fbgemm", "verdict": "deviates", "failed": "numerics", "known": "linear-off-by-one", "isa": "avx2",
        "cpu": "a CPU", "revision": "abc", "steps_max": "1", "mismatched": "3", "total": "32", "sqnr_db": "41.5",
        "seconds": "0.05", "finished": "2026-01-01 02:30:00",
    }  # fmt: skip


def test_a_folder_has_any_name(tmp_path: Path) -> None:
    history = tmp_path / "it's [all] *"
    store_night(history, 1, ROWS)
    store_night(history, 2, ROWS)
    assert runs(history) == [3, 3]


def test_the_same_invocation_is_stored_once(history: Path) -> None:
    path = store_night(history, 1, ROWS)
    before = folders(history)
    with pytest.raises(UsageError, match=r"night-0\.jsonl: its rows are in .*history already"):
        store([path], str(history))
    assert folders(history) == before


def test_two_files_of_one_invocation_are_refused_together(tmp_path: Path, history: Path) -> None:
    paths = [write(tmp_path / name, ROWS) for name in ("one.jsonl", "two.jsonl")]
    with pytest.raises(UsageError, match=r"two\.jsonl: its rows are in .* already, or in two of these files"):
        store(paths, str(history))
    assert not history.exists(), "all of them are added, or none"


def test_another_invocation_of_the_same_night_is_no_duplicate(history: Path) -> None:
    store_night(history, 1, ROWS)
    store_night(history, 1, ROWS, isa="avx512")
    store_night(history, 1, ROWS, torch="2.14.0")
    store_night(history, 1, ROWS, arch="aarch64")
    store_night(history, 1, [DIES])
    store_night(history, 1, ROWS, hour=3)
    assert sorted(runs(history)) == [3, 3, 3, 4]


def test_each_part_of_a_merged_file_is_an_invocation_of_its_own(tmp_path: Path, history: Path, capsys: Capture) -> None:
    old = write(tmp_path / "old.jsonl", ROWS, finished="2026-01-01T02:30:00+00:00")
    arm = write(tmp_path / "arm.jsonl", [CONFORMS], {"arch": "aarch64", "isa": "aarch64"})
    merge([old, arm], tmp_path / "merged.jsonl")
    assert main(["store", str(tmp_path / "merged.jsonl"), "--history", str(history)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/merged.jsonl: 3 rows of fbgemm: 2026-01-01, torch 2.13.0, x86_64 avx2",
        f"{tmp_path}/merged.jsonl: 1 rows of fbgemm: 2026-01-01, torch 2.13.0, aarch64",
    ]
    for path in (old, arm):
        with pytest.raises(UsageError, match=f"{path.name}: its rows are in .* already"):
            store([path], str(history))


def test_merged_shards_are_not_stored_after_the_shards(tmp_path: Path, history: Path) -> None:
    shards = [
        write(tmp_path / f"{n}.jsonl", [ROWS[n]], {"shard": f"{n}/2"}, finished=f"2026-01-01T02:3{n}:00+00:00")
        for n in (1, 2)
    ]
    store(shards, str(history))
    assert runs(history) == [2]
    merge(shards, tmp_path / "merged.jsonl")
    with pytest.raises(UsageError, match=r"merged\.jsonl: its rows are in"):
        store([tmp_path / "merged.jsonl"], str(history))


def test_a_file_that_does_not_state_when_it_finished_needs_a_date(
    tmp_path: Path, history: Path, capsys: Capture
) -> None:
    path = write(tmp_path / "rows.jsonl", ROWS)
    *lines, footer = path.read_text().splitlines()
    values = {name: value for name, value in json.loads(footer).items() if name != "finished"}
    path.write_text("\n".join([*lines, json.dumps(values)]) + "\n")
    command = ["store", str(path), "--history", str(history)]
    assert main(command) == 2
    assert f"{path}: its footer does not state when it finished: give its date with --date YYYY-MM-DD" in (
        capsys.readouterr().err
    )
    assert main([*command, "--date", "2025-12-24"]) == 0
    assert folders(history) == ["date=2025-12-24/torch=2.13.0/arch=x86_64/backend=fbgemm"]
    assert main([*command, "--date", "2025-12-24"]) == 2
    stated = write(tmp_path / "stated.jsonl", ROWS, finished="2026-01-02T02:30:00+00:00")
    assert main(["store", str(stated), "--history", str(history), "--date", "2025-12-25"]) == 0
    assert folders(history)[1].startswith("date=2026-01-02/"), "a date that is stated counts"


def test_a_wrong_date_is_one_error(capsys: Capture) -> None:
    assert main(["store", "rows.jsonl", "--history", "history", "--date", "24.12.2025"]) == 2
    assert "--date: '24.12.2025' is no date: write YYYY-MM-DD\n" in capsys.readouterr().err


def test_an_invocation_without_rows_is_said_and_adds_nothing(tmp_path: Path, history: Path, capsys: Capture) -> None:
    path = write(tmp_path / "rows.jsonl", [])
    assert main(["store", str(path), "--history", str(history)]) == 0
    assert capsys.readouterr().out == f"{path}: no rows\n"
    assert folders(history) == []


def test_a_damaged_rows_file_adds_nothing(tmp_path: Path, history: Path) -> None:
    good, bad = (write(tmp_path / name, ROWS) for name in ("good.jsonl", "bad.jsonl"))
    bad.write_text(bad.read_text().rpartition('{"kind": "footer"')[0])
    with pytest.raises(UsageError, match=r"bad\.jsonl: truncated"):
        store([good, bad], str(history))
    assert not history.exists()


def test_a_folder_with_other_files_and_a_file_are_no_history(tmp_path: Path, history: Path, capsys: Capture) -> None:
    path = write(tmp_path / "rows.jsonl", ROWS)
    for other in (tmp_path, path):
        assert main(["store", str(path), "--history", str(other)]) == 2
        message = f"conformance: error: {other}: not a history of rows: name a new or an empty folder\n"
        assert capsys.readouterr().err == message
    for folder in (tmp_path, history):
        for command in (["trend"], ["since", "*"], ["first-bad"]):
            assert main([*command, "--history", str(folder)]) == 2
            error = capsys.readouterr().err
            assert (
                f"{folder}: no history of rows: `python -m conformance store ROWS… --history {folder}` begins" in error
            )


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, history: Path) -> None:
    store_night(history, 1, ROWS)
    (history / "date=2026-01-02").write_text("")
    with pytest.raises(UsageError, match=r"--history .*date=2026-01-02/torch=.*: .*name a file that can be written"):
        store_night(history, 2, ROWS)


@pytest.mark.parametrize("damage", ["empty", "truncated", "foreign"])
def test_a_damaged_parquet_file_is_one_error_that_names_it(damage: str, history: Path, capsys: Capture) -> None:
    store_night(history, 1, ROWS)
    store_night(history, 2, ROWS)
    path = sorted(history.rglob("*.parquet"))[1]
    if damage == "foreign":
        with duckdb.connect() as database:
            database.execute(f"COPY (SELECT 1 AS number) TO '{path}' (FORMAT parquet)")
    else:
        path.write_bytes(b"" if damage == "empty" else path.read_bytes()[:-20])
    for command in (["trend"], ["since", "*"], ["first-bad"]):
        assert main([*command, "--history", str(history)]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"conformance: error: {history}: DuckDB cannot read or write it: ")
        assert error.endswith("if that file is damaged, remove it and store its rows again\n")
        assert path.name in error
        assert error.count("\n") == 1


def test_a_missing_package_is_one_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, history: Path, capsys: Capture
) -> None:
    for name in [name for name in sys.modules if name.startswith("conformance.reports.")]:
        if name.rpartition(".")[2] in ("rows_history", "nights", "trends", "onsets"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for command in (["store", "rows.jsonl"], ["trend"], ["since", "*"], ["first-bad"]):
        assert main([*command, "--history", str(history)]) == 2
        assert capsys.readouterr().err == (
            "conformance: error: duckdb is not installed: `pip install 'apache-otava>=0.8,<0.9' 'duckdb>=1.2,<3' "
            "'pytest-benchmark>=5,<6' 'scipy>=1.13,<2'`, or in a checkout `tox -e history`\n"
        )


def test_a_remote_history_is_read_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    memory = fsspec.filesystem("memory")
    monkeypatch.setattr(type(memory), "store", {})
    monkeypatch.setattr(rows_history, "REMOTE", "memory://")
    monkeypatch.setattr(rows_history, "load_remote", lambda database: database.register_filesystem(memory))
    path = write(tmp_path / "rows.jsonl", ROWS, {"torch": "2.13.0+cpu"})
    later = write(tmp_path / "later.jsonl", ROWS[:2], finished="2026-01-02T02:30:00+00:00")
    for number in range(2):
        assert main(["store", str(path), "--history", "memory://bucket/history/"]) == (2 if number else 0)
    assert main(["store", str(later), "--history", "memory://bucket/history"]) == 0
    assert "rows.jsonl: its rows are in memory://bucket/history/ already" in capsys.readouterr().err
    assert [counts.runs for counts in trend("memory://bucket/history", Filter())] == [3, 2]


def test_a_remote_history_that_cannot_be_reached_is_one_error(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def fails(database: object) -> None:
        raise duckdb.IOException('Failed to download extension "httpfs"\nin three lines\n')

    monkeypatch.setattr(rows_history, "load_remote", fails)
    assert main(["trend", "--history", "s3://bucket/history"]) == 2
    error = capsys.readouterr().err
    assert error.startswith('conformance: error: s3://bucket/history: Failed to download extension "httpfs": ')
    assert "need credentials as the AWS command line does" in error
    assert error.count("\n") == 1
