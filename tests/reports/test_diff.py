"""Every kind of change between two rows files is reported, with whether it is for the worse."""

import json
from pathlib import Path
from typing import Any

import pytest
from invocation import CONFORMS, WRONG, details_of, offsets, row, write

from conformance.__main__ import main
from conformance.errors import UsageError
from conformance.reports import diff
from conformance.reports.merge import merge

OTHER, OTHER_RAISES = row(variant="large"), row(variant="large", fails=["lowered"])


def changed(tmp_path: Path, before: Any, after: Any, **header: Any) -> diff.Difference:
    """The difference of two files with these rows. A pair is a row with its diagnostics."""
    paths = []
    for name, rows, fields in (("before", before, {}), ("after", after, header)):
        pairs = [pair if isinstance(pair, tuple) else (pair, None) for pair in rows]
        details = [diagnostics for _, diagnostics in pairs if diagnostics is not None]
        paths.append(write(tmp_path / f"{name}.jsonl", [row for row, _ in pairs], fields, details or None))
    return diff.compare(*paths)


def test_equal_rows_have_no_changes(tmp_path: Path) -> None:
    difference = changed(tmp_path, [CONFORMS, WRONG], [CONFORMS, WRONG], torch="2.14.0")
    assert difference.changes == ()
    assert not difference.worse
    assert difference.pairs == ("x86_64 avx2, torch 2.13.0 → x86_64 avx2, torch 2.14.0",)


CHANGES: dict[str, tuple[Any, Any, str, bool, str]] = {
    "a run that breaks": (row(), row(fails=["numerics"]), "verdict", True, "conforms → deviates (numerics)"),
    "a run that is fixed": (row(fails=["numerics"]), row(), "verdict", False, "deviates (numerics) → conforms"),
    "a run that dies": (row(), row(verdict="crashes"), "verdict", True, "conforms → crashes"),
    "a run that is not executed": (row(), row(verdict="unavailable"), "verdict", True, "conforms → unavailable"),
    "a run without its golden": (row(), row(verdict="unjudged"), "verdict", True, "conforms → unjudged"),
    "a check more": (row(fails=["stable"]), row(fails=["stable", "lowered"]), "checks", True, "(lowered, stable)"),
    "a check fewer": (row(fails=["stable", "lowered"]), row(fails=["stable"]), "checks", False, "deviates (stable)"),
    "another kernel": (row(), row(kernels=("quantized.x",)), "kernels", False, "quantized.relu → quantized.x"),
    "more elements off": (
        row(fails=["numerics"]), row(fails=["numerics"], mismatched=4),
        "integers", True, "3 off, 1 tied of 8, by up to 2 steps → 4 off",
    ),
    "further off": (
        row(fails=["numerics"]), row(fails=["numerics"], steps_max=9), "integers", True, "by up to 9 steps",
    ),
    "another side of a tie": (
        (row(), details_of(row(), offsets(0, 1))), (row(), details_of(row(), offsets(0, 0, 0, -1))),
        "integers", False, "2 moved, by up to 1 steps",
    ),
    "codes that moved without a change of the figures": (
        (row(), details_of(row(), offsets(2, 0))), (row(), details_of(row(), offsets(0, 2))),
        "integers", False, "2 moved, by up to 2 steps",
    ),
    "offsets that are not stored": (
        (row(), details_of(row(), offsets(5, 0, differing=9))), (row(), details_of(row(), offsets(7, 1))),
        "integers", False, "at least 1 moved, by up to 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_each_kind_of_change_is_reported(case: str, tmp_path: Path) -> None:
    before, after, kind, worse, description = CHANGES[case]
    difference = changed(tmp_path, [before], [after])
    assert kind in [change.kind for change in difference.changes]
    assert difference.worse is worse
    assert any(description in change.description for change in difference.changes)


def test_new_and_gone_claims_are_reported_unless_they_were_not_selected(tmp_path: Path) -> None:
    difference = changed(tmp_path, [row("nn.ReLU"), row("nn.GRU")], [row("nn.ReLU"), row("nn.ELU")])
    assert [(change.kind, change.id, change.worse) for change in difference.changes] == [
        ("gone claim", "fbgemm/nn.GRU/static-quint8@fbgemm", True),
        ("new claim", "fbgemm/nn.ELU/static-quint8@fbgemm", False),
    ]
    selected = changed(tmp_path, [row("nn.ReLU"), row("nn.GRU")], [row("nn.ReLU")], selection=["*/nn.ReLU/*"])
    assert selected.changes == ()
    unasked = changed(tmp_path, [row("nn.ReLU"), row("nn.GRU")], [row("nn.ReLU")], not_asked_for=[row("nn.GRU").id])
    assert unasked.changes == ()


def test_environments_that_cannot_be_paired_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "one.jsonl", [CONFORMS])
    second = write(tmp_path / "other.jsonl", [CONFORMS], {"arch": "aarch64", "torch": "2.12.0"})
    third = write(tmp_path / "third.jsonl", [CONFORMS], {"arch": "s390x", "torch": "2.11.0"})
    merge([first, second], tmp_path / "both.jsonl")
    with pytest.raises(UsageError, match="name files of one environment each"):
        diff.compare(tmp_path / "both.jsonl", third)
    assert diff.compare(tmp_path / "both.jsonl", second).unpaired == ("x86_64 avx2, torch 2.13.0",)


def test_the_exit_status_says_whether_anything_got_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = write(tmp_path / "good.jsonl", [row()]), write(tmp_path / "bad.jsonl", [row(fails=["stable"])])
    assert main(["diff", str(good), str(bad)]) == 1
    assert main(["diff", str(bad), str(good), "--format", "markdown"]) == 0
    capsys.readouterr()
    assert main(["diff", str(good), str(bad), "--format", "json"]) == 1
    difference = json.loads(capsys.readouterr().out)
    assert difference["worse"] is True
    assert [change["kind"] for change in difference["changes"]] == ["status", "verdict"]


@pytest.mark.parametrize(
    ("before", "after", "described", "worse"),
    [
        ([row()], [row(fails=["lowered"])], "works → refuses", True),
        ([row(fails=["lowered"])], [row()], "refuses → works", False),
        (
            [row(), row(variant="a")],
            [row(), row(variant="a", fails=["lowered"])],
            "works → works, except for some options",
            True,
        ),
        ([row(fails=["lowered"])], [row(verdict="crashes")], "refuses → crashes or corrupts memory", True),
    ],
)
def test_a_claim_whose_status_changed_is_named_first(
    before: Any, after: Any, described: str, worse: bool, tmp_path: Path
) -> None:
    change = changed(tmp_path, before, after).changes[0]
    assert (change.kind, change.id, change.description, change.worse) == (
        "status",
        "fbgemm/nn.ReLU/static-quint8@fbgemm",
        described,
        worse,
    )


def test_a_claim_that_fails_as_before_has_no_other_status(tmp_path: Path) -> None:
    rows = [row(fails=["lowered"]), row(variant="a", fails=["stable"])]
    assert changed(tmp_path, rows, rows).changes == ()
