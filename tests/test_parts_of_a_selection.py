"""Shards of a selection, and what failed or is new since earlier rows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invocation import DIES, write

from conformance.cases.families import Family
from conformance.cases.runs import Run, describe
from conformance.results.profiles import CHECKS
from conformance.results.rows import Row, digest_of
from conformance.results.verdicts import Verdict
from conformance.selection import FAILED, LATER, NEW, Selection

RELU = "fbgemm/nn.ReLU/static-quint8/ptq/"
GLOB = f"{RELU}*/exact@*"
FIRST, SECOND, THIRD, *_ = Selection(globs=[GLOB]).runs


def shards(of: int, **options: Any) -> list[Selection]:
    return [Selection(shard=f"{number}/{of}", **options) for number in range(1, of + 1)]


def row_of(run: Run, **changes: Any) -> Row:
    """The row of a run that conforms."""
    fields = {"verdict": Verdict.CONFORMS, "checks": dict.fromkeys(CHECKS, "pass"), "seconds": 1.0}
    return Row(**{**describe(run), **fields, **changes})


def unavailable(run: Run) -> Row:
    return row_of(run, verdict=Verdict.UNAVAILABLE, checks={}, detail="not built")


def ids(items: Sequence[Run] | Sequence[Family]) -> list[str]:
    return [item.id for item in items]


def test_every_run_and_search_of_a_selection_is_in_one_shard() -> None:
    whole, parts = Selection(backends=["fbgemm", "executorch"]), shards(3, backends=["fbgemm", "executorch"])
    assert sorted(name for part in parts for name in ids(part.runs)) == sorted(ids(whole.runs))
    assert sorted(name for part in parts for name in ids(part.families)) == sorted(ids(whole.families))
    for part in parts:
        place = {name: number for number, name in enumerate(ids(whole.runs))}
        assert ids(part.runs) == sorted(ids(part.runs), key=place.__getitem__)
        assert len(part.families) == 8


def test_what_is_checked_once_for_a_backend_is_checked_in_the_first_shard() -> None:
    first, second = shards(2, backends=["fbgemm"])
    whole = Selection(backends=["fbgemm"])
    assert (first.whole, first.ledger_to_check) == (whole.whole, whole.ledger_to_check)
    assert (second.whole, second.ledger_to_check) == ([], [])


def test_only_a_whole_invocation_tells_what_no_run_needs(tmp_path: Path) -> None:
    assert Selection(backends=["fbgemm"]).complete
    assert not any(part.complete for part in shards(1, backends=["fbgemm"]))
    earlier = write(tmp_path / "rows.jsonl", [row_of(FIRST)])
    assert Selection(backends=["fbgemm"], since=earlier).complete
    assert not Selection(backends=["fbgemm"], since=earlier, only_since=True).complete


def test_a_shard_has_the_header_of_the_whole_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.selection.probe", lambda name: f"{name} is not built")
    whole, second = Selection(globs=[f"{RELU}default/exact@x86"]), shards(2, globs=[f"{RELU}default/exact@x86"])[1]
    assert second.runs == []
    assert second.header() == {**whole.header(), "shard": "2/2"}


def test_shards_are_balanced_by_the_seconds_of_earlier_rows_and_name_them(tmp_path: Path) -> None:
    globs = [f"{RELU}*/exact@x86"]
    every = Selection(globs=globs).runs
    slow = {*ids(every[:2])}
    content = [row_of(run, seconds=100.0 if run.id in slow else 0.1) for run in every]
    earlier = write(tmp_path / "rows.jsonl", content)
    parts = shards(2, globs=globs, since=earlier)
    assert [len(slow.intersection(ids(part.runs))) for part in parts] == [1, 1]
    assert len(parts[0].runs) + len(parts[1].runs) == len(every)
    parts[0].__dict__["unavailable"] = {}
    assert parts[0].header()["since"] == digest_of(earlier.read_text())


def test_runs_have_their_turn_by_what_earlier_rows_say(tmp_path: Path) -> None:
    failed = replace(DIES, **describe(FIRST))
    path = write(tmp_path / "rows.jsonl", [failed, row_of(SECOND), unavailable(THIRD)])
    selection = Selection(globs=[GLOB], since=path)
    turns = Counter(map(selection.turn, selection.runs))
    assert list(map(selection.turn, (FIRST, SECOND, THIRD))) == [FAILED, LATER, NEW]
    assert turns == {FAILED: 1, LATER: 1, NEW: len(selection.runs) - 2}
    assert selection.notes == [f"since {path}: 1 runs failed there, {turns[NEW]} are new"]
    assert not Selection(globs=[GLOB]).notes


def test_only_what_failed_or_is_new_is_selected_and_sharded(tmp_path: Path) -> None:
    every = Selection(globs=[GLOB]).runs
    path = write(tmp_path / "rows.jsonl", [row_of(run) for run in every if run.id not in ids([FIRST, THIRD])])
    only = Selection(globs=[GLOB], since=path, only_since=True)
    assert ids(only.runs) == ids([FIRST, THIRD])
    only.__dict__["unavailable"] = {}
    assert only.header()["only_since"] is True
    parts = shards(3, globs=[GLOB], since=path, only_since=True)
    assert sorted(name for part in parts for name in ids(part.runs)) == sorted(ids(only.runs))
    assert parts[2].notes == [f"since {path}: 0 runs failed there, 2 are new", "shard 3/3: 0 of 2 runs"]


def test_without_anything_failed_or_new_there_is_nothing_to_run(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [row_of(run) for run in Selection(backends=["fbgemm"]).runs])
    selection = Selection(backends=["fbgemm"], since=path, only_since=True)
    assert (selection.runs, selection.families, selection.whole) == ([], [], [])
    assert selection.notes == [f"since {path}: 0 runs failed there, 0 are new: nothing to run"]


def test_an_operator_that_is_executed_nowhere_is_new_once(tmp_path: Path) -> None:
    uncovered = Run(FIRST.backend, FIRST.claim, "ptq", None, "exact", "x86")
    path = write(tmp_path / "rows.jsonl", [unavailable(uncovered)])
    assert Selection(since=path).turn(uncovered) == LATER
    path = write(tmp_path / "rows.jsonl", [row_of(SECOND)])
    assert Selection(since=path).turn(uncovered) == NEW
