"""The order of findings, and which of several findings a check of a run is attributed to."""

from dataclasses import replace
from pathlib import Path

import pytest
from invocation import row, write

from conformance.reports import findings
from conformance.reports.findings import Shown, shown
from conformance.reports.load import Report
from conformance.results.findings.values import OutputShape
from conformance.results.in_use import SHRUNK, read
from conformance.results.rows import Row
from conformance.results.severity import Component, Severity

FINDING = """
[[finding]]
id = "{0}"
title = "{0} is off"
reason = "why"
{2}
shows = [{1}]
"""


def listed(folder: Path, rows: list[Row], **places: str) -> list[Shown]:
    """The findings that rows show of a ledger with these findings, each with the lines of its place."""
    lines = {name: place.partition("|") for name, place in places.items()}
    text = "\n".join(FINDING.format(name, place, further) for name, (place, _, further) in lines.items())
    (folder / "known.toml").write_text(text)
    return shown(Report([write(folder / "rows.jsonl", rows)], [folder]))


def place(pattern: str, *checks: str, variant: str = "*") -> str:
    return f'{{ where = {{ pattern = "{pattern}", variant = "{variant}" }}, must = {[*checks]!r} }}'


def wrong(pattern: str, *, variant: str = "default", steps: int = 2, sqnr: float | None = None) -> Row:
    """A row with wrong numbers, which are inaccurate if there is an SQNR."""
    checks = ["numerics", *(["accuracy"] if sqnr is not None else [])]
    made = row(pattern, fails=checks, variant=variant)
    kept = tuple(OutputShape(check, 0, (1,), (2,)) for check in checks)
    detail = "; ".join(f"{one.check}: {one.text}" for one in kept)
    changed: Row = replace(made, findings=kept, detail=detail, steps_max=steps, sqnr_db=sqnr)
    return changed


def test_default_use_comes_before_options_and_inaccurate_before_off(tmp_path: Path) -> None:
    rows = [
        wrong("nn.A", variant="large", sqnr=3.0),
        wrong("nn.B", sqnr=3.0),
        wrong("nn.C"),
        row("nn.D", fails=["lowered"]),
        row("nn.E", verdict="crashes", variant="large"),
    ]
    places = {
        "options": place("nn.A", "numerics", "accuracy"),
        "inaccurate": place("nn.B", "numerics", "accuracy"),
        "off": place("nn.C", "numerics"),
        "raises": place("nn.D", "lowered"),
        "crashing": place("nn.E", "crashes"),
    }
    assert [one.finding.id for one in listed(tmp_path, rows, **places)] == [
        "inaccurate", "off", "raises", "crashing", "options"
    ]  # fmt: skip


def test_what_layers_of_networks_show_weighs_more(tmp_path: Path) -> None:
    """A layer in use counts if its own run shows the finding, and not if a run with another option of its pattern does."""
    layer = next(one for one in read(SHRUNK) if one.pattern == "nn.Conv2d" and one.variant)
    used = row("nn.Conv2d", fails=["lowered"], variant=layer.variant, profile="in_use", known="used")
    option = row("nn.Conv1d", fails=["lowered"], variant="option", form="an option")
    rows = [option, replace(used, form="another option")]
    found = listed(tmp_path, rows, rare=place("nn.Conv1d", "lowered"), used=place("nn.Conv2d", "lowered"))
    assert [one.finding.id for one in found] == ["used", "rare"]
    assert [one.layers for one in found] == [layer.occurrences, 0]


def test_the_worst_run_is_the_example(tmp_path: Path) -> None:
    rows = [wrong("nn.A"), wrong("nn.A", variant="v1", steps=9), wrong("nn.A", variant="v2", steps=5)]
    (one,) = listed(tmp_path, rows, off=place("nn.A", "numerics"))
    assert one.example.row.steps_max == 9
    assert one.damage == "by up to 9 steps"
    assert one.reach == "in default use of 1 claim"


def test_default_use_that_is_less_bad_is_told_apart(tmp_path: Path) -> None:
    rows = [row("nn.A", fails=["lowered"]), wrong("nn.A", variant="v1")]
    places = [place("nn.A", "numerics", variant="v1"), place("nn.A", "lowered", variant="default")]
    (one,) = listed(tmp_path, rows, off=", ".join(places))
    assert (one.severity, one.default_severity) == (Severity.WRONG, Severity.REFUSES)
    assert one.reach == "with v1; in default use of 1 claim it refuses"


def test_a_check_that_another_finding_covers_too_tells_nothing_if_a_run_shows_this_one_alone(tmp_path: Path) -> None:
    rows = [row("nn.A", fails=["numerics"]), wrong("nn.A", variant="both")]
    places = {"mild": place("nn.A", "numerics"), "bad": place("nn.A", "numerics", variant="both")}
    by_id = {one.finding.id: one for one in listed(tmp_path, rows, **places)}
    assert by_id["mild"].severity is Severity.REFUSES
    assert by_id["bad"].severity is Severity.WRONG
    assert len(by_id["mild"].results) == 2


@pytest.mark.parametrize(
    ("stated", "component"), [("", Component.KERNEL), ('component = "lowering"\n', Component.LOWERING)]
)
def test_the_ledger_says_whether_lowering_is_at_fault(stated: str, component: Component, tmp_path: Path) -> None:
    (one,) = listed(tmp_path, [wrong("nn.A")], off=f"{place('nn.A', 'numerics')}|{stated}")
    assert one.component is component


def test_a_component_that_rows_tell_is_not_overruled(tmp_path: Path) -> None:
    finding = OutputShape("reference", 0, (1,), (2,))
    made = row("nn.A", fails=["reference"], findings=(finding,), detail=f"reference: {finding.text}")
    (one,) = listed(tmp_path, [made], off=f'{place("nn.A", "reference")}|component = "lowering"\n')
    assert one.component is Component.REFERENCE


def test_every_severity_has_a_weight() -> None:
    assert findings.WEIGHTS.keys() == {*Severity}
