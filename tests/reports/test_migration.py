"""The page of migrations and the answer for an operator."""

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.__main__ import main
from conformance.configs.engines import ENGINES
from conformance.errors import UsageError
from conformance.paths import ROOT
from conformance.reports.migration import MEANINGS, PAGE, RECORDED, answer, document
from conformance.results.migrations import Distance, Migrated, Outcome, read, write

HEADER = {"platform": "x86_64", "torch": "2.13.0", "torchao": "0.18.0", "executorch": None}
KEPT = Migrated(
    *("fbgemm/nn.Conv2d/static-quint8", "x86", "nn.Conv2d", "ptq", "x86inductor", "x86-inductor", True, Outcome.KEPT),
    distance=Distance(8, 0, 0.5, 0.01, in_float=True),
    ratio=2.0,
)
OTHER = replace(
    KEPT, claim="fbgemm/nn.Linear/dynamic-quint8", outcome=Outcome.OTHER, distance=Distance(8, 8, None, 0.03, True)
)
LOST = replace(
    KEPT,
    claim="fbgemm/nn.Sigmoid/static-quint8",
    promised=False,
    outcome=Outcome.NOT_ANNOTATED,
    pt2e="annotated: input x is not annotated",
    distance=None,
    ratio=None,
)
ITEMS = [KEPT, OTHER, LOST]


def test_the_page_counts_and_lists_claims() -> None:
    text = "\n".join(document(HEADER, ITEMS))
    assert "Measured with torch 2.13.0, torchao 0.18.0 on x86_64." in text
    assert "| outcome | fbgemm on x86 → x86-inductor |" in text
    assert "| ✓ kept, with the same numbers | 1 |" in text
    assert "| **lost in all** | 1 |" in text
    assert "| **claims** | 3 |" in text
    assert "median (claims) | 2.00 (2) |" in text
    assert "| `nn.Conv2d` | static-quint8 | ✓ kept (2.00×) |" in text
    assert "3.0% of the greatest value" in text
    assert "## Fixed qparams" in text


def test_every_outcome_has_a_meaning() -> None:
    assert MEANINGS.keys() == {*Outcome}


def test_an_operator_is_answered() -> None:
    text = "\n".join(answer(ITEMS, "nn.Conv2d"))
    assert "kept, with the same numbers, by x86inductor on x86-inductor" in text
    assert "every element the same, ties aside; the output stays in float" in text
    assert "latency: 2.00 times" in text
    lost = "\n".join(answer(ITEMS, "nn.Sigmoid"))
    assert "lost: not annotated, by x86inductor on x86-inductor, which does not declare it" in lost
    assert "PT2E: annotated: input x is not annotated" in lost


def test_an_unknown_operator_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"nn\.Conv2: no pattern .* did you mean nn\.Conv2d"):
        [*answer(ITEMS, "nn.Conv2")]


def test_the_committed_page_is_that_of_the_committed_file() -> None:
    header, items = read(RECORDED)
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert page == "\n".join(document(header, items)).rstrip() + "\n"
    assert len({one.claim for one in items}) == 1045
    assert {one.claim.partition("/")[0] for one in items} == {*ENGINES}
    assert not [one.claim for one in items if one.outcome is Outcome.UNAVAILABLE]


def test_the_command_reads_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "migrations.jsonl"
    write(path, HEADER, ITEMS)
    assert main(["migrate", "nn.Conv2d", "--claims", str(path)]) == 0
    assert "kept, with the same numbers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["migrate"], "name an operator"),
        (["migrate", "--follow", "x.jsonl", "--backend", "fbgem"], "did you mean fbgemm"),
        (["migrate", "nn.Conv2d", "--claims", "none.jsonl"], "none.jsonl"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
