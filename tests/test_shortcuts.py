"""No shortcut changes a row, and each of them saves work. `--hypothesis-profile nightly` draws another and larger sample."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from conformance import shortcuts
from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.checks.judge import Judge
from conformance.execution.batch import judge_runs
from conformance.host.isolation import Raised
from conformance.models import fx
from conformance.paths import KNOWN
from conformance.properties import search  # noqa: F401  (registers and loads the profiles of hypothesis)
from conformance.results.ledger_file import load
from conformance.results.rows import Row
from conformance.shortcuts import NAMES, TABLE, enabled, switch_off, without

RUNS = 6
"""The number of runs of one claim and flow that are judged together."""

OF_CASES = (
    "tables",
    "code",
    "copies",
    "conversion",
    "reference",
    "ablation",
    "state_dict",
    "templates",
    "tracing",
    "messages",
)
"""Shortcuts of runs that compare with a golden. tests/properties has the others."""

UNCOUNTED = ("tracing", "messages")
"""Those that save no calls here: of Python's own work, of exact runs, or only where a model raises. tests/models tests what
they do."""


@cache
def groups() -> Sequence[tuple[Run, ...]]:
    """The exact and typical runs of each claim and flow, RUNS at a time, without those that the ledger lists as crashes."""
    crashing = [entry for entry in load(KNOWN) if "crashes" in entry.check]
    kept: dict[tuple[str, str], list[Run]] = {}
    for name in ("qnnpack", "fbgemm"):
        for run in runs(backend(name)):
            if run.profile in ("exact", "typical") and not any(entry.matches(run.id) for entry in crashing):
                kept.setdefault((run.claim.id, run.flow), []).append(run)
    return [tuple(of[n : n + RUNS]) for of in kept.values() for n in range(0, len(of), RUNS)]


def rows(batch: Sequence[Run]) -> Iterator[Row]:
    for judged in judge_runs(batch, lambda engine: None):
        assert not isinstance(judged, Raised), judged.traceback
        yield replace(judged.row, seconds=0.0)


def test_the_table_names_every_shortcut_once() -> None:
    assert len(NAMES) == len(TABLE)
    assert set(OF_CASES) <= NAMES
    assert all(shortcut.reason for shortcut in TABLE)


def test_shortcuts_are_switched_off_by_name() -> None:
    assert all(map(enabled, NAMES))
    with without("code"):
        assert not enabled("code")
        assert enabled("copies")
        with without():
            assert not any(map(enabled, NAMES))
        assert enabled("copies")
    assert enabled("code")
    with pytest.raises(KeyError, match="unheard"):
        enabled("unheard")
    with pytest.raises(KeyError, match="unheard"), without("unheard"):
        pass


def test_shortcuts_are_switched_off_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcuts, "_OFF", set())
    switch_off("code")
    assert not enabled("code")
    assert enabled("copies")
    switch_off(*NAMES)
    assert not any(map(enabled, NAMES))


@settings(max_examples=max(2, settings().max_examples // 50), phases=[Phase.generate])
@given(st.integers(0, len(groups()) - 1))
def test_rows_are_the_same_without_shortcuts(number: int) -> None:
    batch = groups()[number]
    honest = [*rows(batch)]
    for name in OF_CASES:
        with without(name):
            again = [*rows(batch)]
        different = [row.id for row, expected in zip(again, honest, strict=True) if row != expected]
        assert not different, name


def calls(batch: Sequence[Run]) -> int:
    """The number of Python functions that are called to judge a batch in this process."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    judge = Judge()
    sys.setprofile(counted)
    try:
        for run in batch:
            judge.row(run)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", [name for name in OF_CASES if name not in UNCOUNTED])
def test_a_shortcut_saves_work(name: str) -> None:
    wanted = [
        f"fbgemm/nn.Conv2d/static-quint8/ptq/{variant}/exact@{engine}"
        for variant in ("default", "batch1")
        for engine in ("fbgemm", "x86")
    ]
    by_id = {run.id: run for run in runs(backend("fbgemm"), globs=["fbgemm/nn.Conv2d/static-quint8/*"])}
    batch = [by_id[wanted_id] for wanted_id in wanted]
    calls(batch)  # what is loaded lazily is loaded
    with_it = calls(batch)
    with without(name):
        assert with_it < calls(batch)


def test_a_settled_model_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    conversions = Counter[str]()

    def counted(name: str) -> None:
        honest = vars(fx)[name]

        def convert(*arguments: Any, **options: Any) -> Any:
            conversions[name] += 1
            return honest(*arguments, **options)

        monkeypatch.setattr(fx, name, convert)

    for name in ("convert_to_reference_fx", "convert_fx"):
        counted(name)
    by_id = {run.id: run for run in runs(backend("fbgemm"), globs=["fbgemm/nn.Conv2d/static-quint8/*"])}
    judge = Judge()
    for engine in ("fbgemm", "x86"):
        judge.row(by_id[f"fbgemm/nn.Conv2d/static-quint8/ptq/default/exact@{engine}"])
    # once calibrated, and once with the other weights of the model that a state is loaded into
    assert conversions == {"convert_to_reference_fx": 2}
