"""New deviations in groups, one for each likely cause."""

from pathlib import Path
from typing import Any

import pytest
from invocation import LEDGER, row, write

from conformance.reports.load import Report
from conformance.reports.news import Group, groups
from conformance.results.findings.stages import Raises
from conformance.results.findings.values import CodesDiffer
from conformance.results.rows import Row

THEIRS = {"backend": "mine", "engine": "theirs"}


def grouped(folder: Path, rows: list[Row], ledger: str = LEDGER) -> list[Group]:
    (folder / "known.toml").write_text(ledger)
    return groups(Report([write(folder / "rows.jsonl", rows)], [folder]))


def mine(name: str, **changes: Any) -> Row:
    """A row of theirs with codes that differ, or with these fields."""
    codes = CodesDiffer("numerics", 0, 3, 8, 2, ())
    differing = {"fails": ["numerics"], "findings": (codes,), "detail": f"numerics: {codes.text}"}
    made: Row = row(name, **{**({} if "fails" in changes or "verdict" in changes else differing), **THEIRS, **changes})
    return made


def raising(name: str, message: str, form: str, stage: str = "lower") -> Row:
    found = Raises("lowered", stage, "RuntimeError", message)
    variant = form.replace("=", "_").replace("'", "")
    return mine(name, fails=["lowered"], findings=(found,), detail=f"lowered: {found.text}", variant=variant, form=form)


def test_where_default_use_deviates_all_that_computes_the_same_is_one_group(tmp_path: Path) -> None:
    rows = [mine("nn.Linear"), mine("nn.Linear+nn.ReLU", variant="a", form="bias=False"), mine("nn.GELU")]
    found = grouped(tmp_path, rows)
    assert [one.claims for one in found] == [
        ["mine/nn.Linear/static-quint8", "mine/nn.Linear+nn.ReLU/static-quint8"],
        ["mine/nn.GELU/static-quint8"],
    ]
    assert found[0].example.form == ""


def test_what_raises_the_same_message_has_one_cause(tmp_path: Path) -> None:
    rows = [
        raising("nn.Conv2d", "no kernel for 3 groups", "groups=3"),
        raising("nn.Conv1d", "no kernel for 12 groups", "groups=12"),
        raising("nn.Conv1d", "padding is negative", "padding=-1"),
    ]
    assert [len(one.results) for one in grouped(tmp_path, rows)] == [2, 1]


def test_else_runs_with_an_option_in_common_have_one_cause(tmp_path: Path) -> None:
    forms = ["stride=2", "stride=2, groups=4", "dilation=3", "dilation=3, groups=2"]
    rows = [mine("nn.Conv2d", variant=f"v{number}", form=form) for number, form in enumerate(forms)]
    assert [[result.form for result in one.results] for one in grouped(tmp_path, rows)] == [
        ["dilation=3", "dilation=3, groups=2"],
        ["stride=2", "stride=2, groups=4"],
    ]


def test_the_worst_is_first_and_what_torch_does_too_is_last(tmp_path: Path) -> None:
    engines = 'engine = ["fbgemm", "onednn", "qnnpack", "x86"], pattern = "nn.Conv?d"'
    ledger = LEDGER.replace('backend = "fbgemm", engine = "fbgemm", pattern = "nn.Linear"', engines)
    rows = [
        mine("nn.Conv1d"),
        mine("nn.Conv2d"),
        mine("nn.GELU", fails=["lowered"]),
        mine("nn.GRU", verdict="crashes"),
    ]
    found = grouped(tmp_path, rows, ledger)
    assert [(one.what, one.like and one.like.id) for one in found] == [
        ("crashes or corrupts memory", None),
        ("refuses (execute)", None),
        ("wrong numbers, silently", "linear-is-off"),
    ]
    assert len(found[2].results) == 2


@pytest.mark.parametrize(("form", "like"), [("", None), ("stride=2", "linear-is-off")])
def test_in_default_use_every_engine_of_torch_has_to_do_it_too(tmp_path: Path, form: str, like: str | None) -> None:
    variant = "stride" if form else "default"
    (one,) = grouped(tmp_path, [mine("nn.Linear", variant=variant, form=form)])  # the ledger has it for fbgemm alone
    assert (one.like and one.like.id) == like


def test_what_conforms_unexpectedly_is_told_last(tmp_path: Path) -> None:
    found = grouped(tmp_path, [row("nn.Linear"), mine("nn.GELU")])
    assert [one.what for one in found][1] == "conforms, which the ledger does not expect"
