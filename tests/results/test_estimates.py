"""What the rows file of the last invocation says: seconds, and what was not expected."""

from dataclasses import replace
from pathlib import Path

import pytest
from invocation import row, write

from conformance.results.estimates import LastTime, last_time
from conformance.results.verdicts import Verdict


def test_a_rows_file_has_the_seconds_of_each_run(tmp_path: Path) -> None:
    rows = [row("nn.ReLU", seconds=0.25), row("nn.Linear", seconds=2.0)]
    path = write(tmp_path / "rows.jsonl", rows)
    assert last_time(path) == LastTime({rows[0].id: 0.25, rows[1].id: 2.0}, set())


@pytest.mark.parametrize(
    ("verdict", "known", "unexpected"),
    [
        (Verdict.CONFORMS, "an-entry", True),
        (Verdict.DEVIATES, "an-entry", False),
        (Verdict.DEVIATES, None, True),
        (Verdict.CRASHES, None, True),
        (Verdict.UNDEFINED, "an-entry", False),
        (Verdict.UNAVAILABLE, None, False),
    ],
)
def test_a_run_is_unexpected_that_deviates_without_an_entry_or_conforms_with_one(
    tmp_path: Path, verdict: Verdict, known: str | None, unexpected: bool
) -> None:
    path = write(tmp_path / "rows.jsonl", [replace(row("nn.ReLU"), verdict=verdict, known=known)])
    assert bool(last_time(path).unexpected) is unexpected


@pytest.mark.parametrize(
    "text", [None, "", "no JSON\n", '{"kind": "row"}\n', "[]\n", '{"kind": "row", "id": 1, "seconds": []}\n']
)
def test_a_file_that_is_missing_or_damaged_has_none(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "rows.jsonl"
    if text is not None:
        path.write_text(text)
    assert not last_time(path).seconds
