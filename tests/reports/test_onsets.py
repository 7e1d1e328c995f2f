"""When runs became as they are: since when, and the first bad night."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invocation import CONFORMS, DIES, HOSTILE, WRONG, row, store_night

pytest.importorskip("duckdb", reason="`tox -e history` has it")

from conformance.__main__ import main
from conformance.reports.nights import Filter
from conformance.reports.onsets import MOST, Onset, first_bad, first_bad_text, since
from conformance.results.rows import Row

Capture = pytest.CaptureFixture[str]
GOOD = row("nn.Linear")
AWAY = row("nn.Linear", verdict="unavailable", detail="not built")
STRONGER = row("nn.Linear", fails=["numerics", "stable"])


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"


def nights(history: Path, *rows: Row, **header: Any) -> None:
    """Store a night for each row, from the first of January, each with a revision of its own."""
    for day, content in enumerate(rows, 1):
        store_night(history, day, [content], **{"git": f"r{day}", **header})


def summary(onset: Onset) -> list[str | None]:
    """The states and days of the night before, the first and the last night."""
    return [f"{one.state} {one.date[-1]}" if one else None for one in (onset.before, onset.first, onset.last)]


def of_linear(history: Path) -> list[list[str | None]]:
    return [summary(onset) for onset in since(str(history), Filter(globs=[GOOD.id]))]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ((GOOD, GOOD), [None, "conforms 1", "conforms 2"]),
        ((GOOD, WRONG, WRONG), ["conforms 1", "deviates (numerics) 2", "deviates (numerics) 3"]),
        ((WRONG, GOOD), ["deviates (numerics) 1", "conforms 2", "conforms 2"]),
        ((WRONG, GOOD, WRONG), ["conforms 2", "deviates (numerics) 3", "deviates (numerics) 3"]),
        (
            (WRONG, STRONGER),
            ["deviates (numerics) 1", "deviates (numerics, stable) 2", "deviates (numerics, stable) 2"],
        ),
        ((GOOD, AWAY, AWAY), ["conforms 1", "unavailable 2", "unavailable 3"]),
    ],
)
def test_a_state_is_the_verdict_with_the_failed_checks(
    rows: tuple[Row, ...], found: list[str | None], history: Path
) -> None:
    nights(history, *rows)
    assert of_linear(history) == [found]


def test_a_crash_is_a_state_without_checks(history: Path) -> None:
    nights(history, row("nn.GRU"), DIES)
    (onset,) = since(str(history), Filter(globs=[DIES.id]))
    assert summary(onset) == ["conforms 1", "crashes 2", "crashes 2"]
    assert (onset.first.failed, onset.first.fails) == (("crashes",), True)


def test_nights_without_the_run_do_not_count(history: Path) -> None:
    nights(history, GOOD, CONFORMS, CONFORMS, WRONG)
    assert of_linear(history) == [["conforms 1", "deviates (numerics) 4", "deviates (numerics) 4"]]


def test_both_nights_have_torch_revision_and_processor(history: Path) -> None:
    store_night(history, 1, [GOOD], torch="2.12.0", git=None)
    store_night(history, 2, [WRONG], cpu="another CPU", git="r2")
    (onset,) = since(str(history), Filter(globs=[GOOD.id]))
    assert onset.before is not None
    assert [(one.torch, one.revision, one.cpu) for one in (onset.before, onset.first)] == [
        ("2.12.0", "", "a CPU"),
        ("2.13.0", "r2", "another CPU"),
    ]


def test_platforms_and_versions_of_torch_have_onsets_of_their_own(history: Path) -> None:
    nights(history, GOOD, WRONG)
    nights(history, GOOD, GOOD, isa="avx512")
    store_night(history, 2, [GOOD], torch="2.14.0")
    store_night(history, 3, [STRONGER], torch="2.14.0")
    store_night(history, 3, [WRONG])
    onsets = since(str(history), Filter(globs=[GOOD.id]))
    assert [(onset.platform, onset.last.torch, summary(onset)[0]) for onset in onsets] == [
        ("x86_64 avx2", "2.13.0", "conforms 1"),
        ("x86_64 avx2", "2.14.0", "conforms 2"),
        ("x86_64 avx512", "2.13.0", None),
    ]


def test_the_first_bad_night_follows_one_in_which_the_run_conformed(history: Path) -> None:
    nights(history, GOOD, GOOD, WRONG, STRONGER)
    nights(history, CONFORMS, CONFORMS, CONFORMS, CONFORMS)
    store_night(history, 5, [STRONGER, row("nn.ELU", fails=["numerics"])])
    (onset,) = first_bad(str(history), Filter())
    assert onset.run == GOOD.id
    assert summary(onset) == ["conforms 2", "deviates (numerics) 3", "deviates (numerics, stable) 5"]


def test_a_crash_is_bad_and_an_unavailable_engine_is_neither(history: Path) -> None:
    nights(history, row("nn.GRU"), replace(AWAY, id=DIES.id, pattern="nn.GRU"), DIES)
    (onset,) = first_bad(str(history), Filter())
    assert summary(onset) == ["conforms 1", "crashes 3", "crashes 3"]


def test_of_several_bad_nights_the_last_onset_counts(history: Path) -> None:
    nights(history, GOOD, WRONG, GOOD, WRONG, GOOD)
    (onset,) = first_bad(str(history), Filter())
    assert summary(onset) == ["conforms 3", "deviates (numerics) 4", "conforms 5"]


def test_nights_may_be_limited(history: Path) -> None:
    nights(history, GOOD, WRONG, GOOD, WRONG, GOOD)
    (onset,) = first_bad(str(history), Filter(last="2026-01-03"))
    assert summary(onset) == ["conforms 1", "deviates (numerics) 2", "conforms 3"]
    assert first_bad(str(history), Filter(first="2026-01-04")) == []


def test_what_series_have_in_common_is_said_once(history: Path) -> None:
    nights(history, GOOD, WRONG)
    store_night(history, 3, [WRONG], torch="2.14.0")
    store_night(history, 3, [WRONG])
    assert len(first_bad(str(history), Filter())) == 1
    assert len(since(str(history), Filter(globs=[GOOD.id]))) == 2


def test_since_prints_both_nights_and_what_changed(history: Path, capsys: Capture) -> None:
    store_night(history, 1, [GOOD, CONFORMS], torch="2.12.0", git="r1")
    store_night(history, 2, [WRONG, CONFORMS], git="r2")
    store_night(history, 3, [WRONG, CONFORMS], git="r2")
    assert main(["since", "*", "--history", str(history)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{WRONG.id} (x86_64 avx2)",
        "  deviates (numerics) since 2026-01-02 (torch 2.13.0, revision r2), last on 2026-01-03 (torch 2.13.0, revision r2)",
        "  conforms until 2026-01-01 (torch 2.12.0, revision r1)",
        "    torch 2.12.0 → 2.13.0",
        "    revision r1 → r2",
        f"{CONFORMS.id} (x86_64 avx2)",
        "  conforms since 2026-01-01 (torch 2.12.0, revision r1), last on 2026-01-03 (torch 2.13.0, revision r2)",
        "  no night before it has another state",
    ]
    assert main(["since", WRONG.id, "--history", str(history), "--format", "markdown"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"- `{WRONG.id}` (x86_64 avx2): deviates (numerics) since 2026-01-02 (torch 2.13.0, revision r2); conforms until "
        "2026-01-01 (torch 2.12.0, revision r1)",
        "  - `torch 2.12.0 → 2.13.0`",
        "  - `revision r1 → r2`",
    ]
    assert main(["since", WRONG.id, "--history", str(history), "--format", "json"]) == 0
    (onset,) = json.loads(capsys.readouterr().out)
    assert (onset["run"], onset["arch"], onset["isa"]) == (WRONG.id, "x86_64", "avx2")
    assert onset["first"] == {
        "date": "2026-01-02", "torch": "2.13.0", "revision": "r2", "cpu": "a CPU", "verdict": "deviates",
        "failed": ["numerics"],
    }  # fmt: skip
    assert (onset["before"]["date"], onset["last"]["date"]) == ("2026-01-01", "2026-01-03")


def test_first_bad_prints_runs_by_nights_and_what_changed(history: Path, capsys: Capture) -> None:
    gelu, bad_gelu = row("nn.GELU"), row("nn.GELU", fails=["stable"])
    store_night(history, 1, [GOOD, gelu, row("nn.GRU")], git="r1")
    store_night(history, 2, [WRONG, gelu, DIES], git="r1", cpu="another CPU")
    store_night(history, 3, [GOOD, bad_gelu, DIES], git="r1", cpu="another CPU")
    assert main(["first-bad", "--history", str(history)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2026-01-02 (torch 2.13.0, revision r1) on x86_64 avx2: 2 runs became bad, conformed on 2026-01-01 (torch 2.13.0, "
        "revision r1)",
        "    cpu a CPU → another CPU",
        f"  {DIES.id}: crashes",
        f"  {WRONG.id}: deviates (numerics); conforms on 2026-01-03",
        "2026-01-03 (torch 2.13.0, revision r1) on x86_64 avx2: 1 run became bad, conformed on 2026-01-02 (torch 2.13.0, "
        "revision r1)",
        "    neither torch nor the revision nor the processor changed",
        f"  {gelu.id}: deviates (stable)",
    ]
    command = ["first-bad", "--history", str(history), "--case", "*/nn.GELU/*", "--format"]
    assert main([*command, "markdown"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "## Runs that became bad: 1",
        "",
        "- 2026-01-03 (torch 2.13.0, revision r1) on x86_64 avx2: 1 run became bad, conformed on 2026-01-02 (torch 2.13.0, "
        "revision r1)",
        "  - `neither torch nor the revision nor the processor changed`",
        f"  - `{gelu.id}`: deviates (stable)",
    ]
    assert main([*command, "json"]) == 0
    (onset,) = json.loads(capsys.readouterr().out)
    assert (onset["before"]["verdict"], onset["first"]["failed"]) == ("conforms", ["stable"])


def test_a_night_without_bad_runs_is_said(history: Path, capsys: Capture) -> None:
    nights(history, GOOD, GOOD)
    for form, text in (("text", "no run became bad\n"), ("markdown", "## Runs that became bad: 0\n"), ("json", "[]\n")):
        assert main(["first-bad", "--history", str(history), "--format", form]) == 0
        assert capsys.readouterr().out == text


def test_of_many_runs_some_are_listed_and_the_rest_are_counted(history: Path, capsys: Capture) -> None:
    names = [f"nn.Op{number:03}" for number in range(MOST + 5)]
    for day, fails in ((1, []), (2, ["numerics"])):
        store_night(history, day, [row(name, fails=fails) for name in names])
    for form in ("text", "markdown"):
        assert main(["first-bad", "--history", str(history), "--format", form]) == 0
        out = capsys.readouterr().out
        assert f"{len(names)} runs became bad" in out
        assert "and 5 more" in out
        assert out.count("nn.Op") == MOST
    assert main(["first-bad", "--history", str(history), "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(names)


def test_commits_between_both_nights_are_listed(history: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    git = [
        "git",
        "-C",
        str(repository),
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@b.invalid",
        "-c",
        "commit.gpgsign=false",
    ]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    revisions = []
    for number in range(3):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", f"Change {number}"], check=True)
        shown = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True)
        revisions.append(shown.stdout.strip())
    store_night(history, 1, [GOOD], git=revisions[0])
    store_night(history, 2, [WRONG], git=revisions[2])
    lines = [*first_bad_text(first_bad(str(history), Filter()), repository)]
    assert [line.split(" ", 5)[5] for line in lines[2:4]] == ["Change 2", "Change 1"]
    assert lines[1] == f"    revision {revisions[0]} → {revisions[2]}"


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("command", [["since", "*"], ["first-bad"]])
def test_hostile_text_cannot_leave_its_line(command: list[str], form: str, history: Path, capsys: Capture) -> None:
    nights(history, GOOD, isa=HOSTILE)
    store_night(history, 2, [WRONG], git=HOSTILE, cpu=HOSTILE, isa=HOSTILE)
    assert main([*command, "--history", str(history), "--format", form]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\n::error" not in out
    assert form == "text" or "<script>" not in out
