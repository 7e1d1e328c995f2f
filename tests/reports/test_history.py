"""Histories of timings: each file is stored once, series are by case and platform, and only lasting changes are alerts."""

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from timed import HEADER, network, passes, write

pytest.importorskip("duckdb", reason="`tox -e bench` has it")
pytest.importorskip("otava", reason="`tox -e bench` has it")

from conformance.bench.results import read
from conformance.bench.timings import Memory
from conformance.errors import UsageError
from conformance.reports.history import (
    COLUMNS,
    MEMORY,
    SUSTAINED,
    alerts,
    as_markdown,
    change_points,
    lines,
    load,
    store,
)
from conformance.reports.revisions import commits


def night(folder: Path, number: int, ratios: list[float], name: str = "nn.Linear", **header: Any) -> None:
    """Store the timings of one night."""
    path = folder / f"{number}-{header.get('arch', 'x86_64')}.jsonl"
    fields = {**HEADER, "git": f"{number:012x}", **header}
    finished = f"2026-{1 + number // 28:02}-{1 + number % 28:02}T02:30:00+00:00"
    store(read(write(path, passes(name, ratios), header=fields, finished=finished)), folder / "history")


def nights(folder: Path, levels: list[float]) -> Path:
    """A history of one case with some noise."""
    chance = random.Random(3)
    for number, level in enumerate(levels):
        night(folder, number, [level * 1.01 ** chance.gauss(0, 1) for _ in range(5)])
    return folder / "history"


def test_a_series_is_in_order_of_time_with_the_spread_of_its_passes(tmp_path: Path) -> None:
    night(tmp_path, 2, [0.5, 0.6, 0.7], torch="2.14.0")
    night(tmp_path, 1, [0.4, 0.5, 0.6])
    (series,) = load(tmp_path / "history")
    assert series.case == passes("nn.Linear", [1.0])[0].case
    assert series.platform == "x86_64 avx2, A CPU, 2 cores"
    assert [point.finished for point in series.nights] == ["2026-01-02 02:30", "2026-01-03 02:30"]
    assert [point.torch for point in series.nights] == ["2.13.0", "2.14.0"]
    assert [(point.ratio, point.low, point.high) for point in series.nights] == [
        pytest.approx((0.5, 0.4, 0.6)),
        pytest.approx((0.6, 0.5, 0.7)),
    ]


def test_series_are_by_platform_and_selected_by_a_glob(tmp_path: Path) -> None:
    night(tmp_path, 1, [0.4] * 3)
    night(tmp_path, 1, [0.9] * 3, arch="aarch64", isa="aarch64")
    assert [series.platform.split()[0] for series in load(tmp_path / "history")] == ["aarch64", "x86_64"]
    assert load(tmp_path / "history", "*nn.Linear*")
    with pytest.raises(UsageError, match=r"no case '\*nn\.GRU\*'"):
        load(tmp_path / "history", "*nn.GRU*")


def test_a_file_is_stored_once(tmp_path: Path) -> None:
    night(tmp_path, 1, [0.4] * 3)
    with pytest.raises(UsageError, match="is in this history already"):
        night(tmp_path, 1, [0.4] * 3)
    assert not [*(tmp_path / "history").glob("*.partial")]


def test_a_lasting_change_is_found_at_its_first_night(tmp_path: Path) -> None:
    (series,) = load(nights(tmp_path, [0.5] * 20 + [0.6] * 10))
    (point,) = change_points(series)
    assert point.index == 20
    assert point.change == pytest.approx(0.2, abs=0.02)
    assert (point.before.revision, point.after.revision) == (f"{19:012x}", f"{20:012x}")
    assert alerts([series]) == [point]
    text = "\n".join(lines([series], [point], tmp_path))
    assert "% slower since 2026-01-21 02:30" in text
    assert f"{19:012x} → {20:012x}" in text


def test_one_noisy_night_is_no_alert(tmp_path: Path) -> None:
    (series,) = load(nights(tmp_path, [0.5] * 20 + [0.8] + [0.5] * 9))
    assert alerts([series]) == []


def test_an_alert_waits_until_a_change_lasts(tmp_path: Path) -> None:
    (series,) = load(nights(tmp_path, [0.5] * 20 + [0.8] * (SUSTAINED - 1)))
    assert alerts([series]) == []


def test_changes_within_the_margin_are_no_alert(tmp_path: Path) -> None:
    (series,) = load(nights(tmp_path, [0.5] * 20 + [0.51] * 10))
    assert change_points(series) == []


def test_the_commits_between_two_nights_are_named(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        process = subprocess.run(
            ["git", "-C", str(tmp_path), *who, *arguments], capture_output=True, text=True, check=True
        )
        return process.stdout.strip()

    git("init", "--quiet")
    revisions = []
    for number in range(3):
        git("commit", "--quiet", "--allow-empty", "-m", f"Change {number}")
        revisions.append(git("rev-parse", "--short=12", "HEAD"))
    subjects = commits(revisions[0], f"{revisions[2]}-dirty", tmp_path)
    assert [line.partition(" ")[2] for line in subjects] == ["Change 2", "Change 1"]
    assert commits("0" * 12, revisions[2], tmp_path) == []
    assert commits(revisions[2], revisions[2], tmp_path) == []


def test_alerts_are_markdown_with_both_revisions(tmp_path: Path) -> None:
    (series,) = load(nights(tmp_path, [0.5] * 20 + [0.6] * 10))
    text = "\n".join(as_markdown(alerts([series]), tmp_path))
    assert text.startswith("## Lasting changes of latency and memory: 1\n")
    assert f"`{19:012x} → {20:012x}`" in text
    assert "\n".join(as_markdown([], tmp_path)) == "## Lasting changes of latency and memory: 0"


def network_night(folder: Path, number: int, peak: int) -> None:
    """Store the timings of a network on one night, with this peak of the lowered model's memory."""
    timed = [network(0, memory=Memory(peak, 80_000_000, 12_000_000, 46_000_000)), network(1), network(2)]
    finished = f"2026-{1 + number // 28:02}-{1 + number % 28:02}T02:30:00+00:00"
    store(read(write(folder / f"{number}.jsonl", timed, finished=finished)), folder / "history")


def test_the_memory_of_networks_has_series_and_alerts_of_its_own(tmp_path: Path) -> None:
    chance = random.Random(5)
    for number in range(30):
        network_night(tmp_path, number, (30_000_000 if number < 20 else 40_000_000) + chance.randrange(100_000))
    series = load(tmp_path / "history")
    assert {one.figure for one in series} == {"latency", "peak memory", "size on disk"}
    (point,) = alerts(series)
    assert (point.series.figure, point.index) == ("peak memory", 20)
    text = "\n".join(as_markdown([point], tmp_path))
    assert "% larger since 2026-01-21 02:30: networks/resnet18/batch_1/eager@x86#1, peak memory" in text


def test_a_history_of_before_memory_was_kept_is_read(tmp_path: Path) -> None:
    night(tmp_path, 1, [0.4] * 3)
    (path,) = (tmp_path / "history").glob("*.parquet")
    import duckdb

    with duckdb.connect() as database:
        older = ", ".join(name for name in COLUMNS if name not in MEMORY)
        database.execute(f"COPY (SELECT {older} FROM '{path}') TO '{tmp_path / 'older'}' (FORMAT parquet)")
    (tmp_path / "older").replace(path)
    assert [one.figure for one in load(tmp_path / "history")] == ["latency"]
    network_night(tmp_path, 2, 30_000_000)
    assert len(load(tmp_path / "history")) == 4


def test_a_missing_or_damaged_history_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no history"):
        load(tmp_path)
    (tmp_path / "one.parquet").write_text("no parquet")
    with pytest.raises(UsageError, match="damaged, or no history"):
        load(tmp_path)
