"""Seconds of earlier rows."""

from pathlib import Path

import pytest
from invocation import row, write

from conformance.results.estimates import earlier_seconds


def test_a_rows_file_has_the_seconds_of_each_run(tmp_path: Path) -> None:
    rows = [row("nn.ReLU", seconds=0.25), row("nn.Linear", seconds=2.0)]
    path = write(tmp_path / "rows.jsonl", rows)
    assert earlier_seconds(path) == {rows[0].id: 0.25, rows[1].id: 2.0}


@pytest.mark.parametrize(
    "text", [None, "", "no JSON\n", '{"kind": "row"}\n', "[]\n", '{"kind": "row", "id": 1, "seconds": []}\n']
)
def test_a_file_that_is_missing_or_damaged_has_none(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "rows.jsonl"
    if text is not None:
        path.write_text(text)
    assert earlier_seconds(path) == {}
