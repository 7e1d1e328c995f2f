"""Merged files contain their parts verbatim, and the same run twice is refused."""

from pathlib import Path

import pytest
from invocation import CONFORMS, WRONG, details_of, offsets, write

from conformance.errors import UsageError
from conformance.reports.merge import merge
from conformance.results import diagnostics, rows


def test_the_same_run_twice_is_refused_with_both_names(tmp_path: Path) -> None:
    first, second = (write(tmp_path / f"{name}.jsonl", [CONFORMS]) for name in ("one", "other"))
    with pytest.raises(UsageError, match=r"other\.jsonl: duplicate: fbgemm/nn\.ReLU/.* is in .*one\.jsonl too"):
        merge([first, second], tmp_path / "merged.jsonl")
    assert not (tmp_path / "merged.jsonl").exists()


def test_a_merged_file_contains_its_parts_and_their_diagnostics(tmp_path: Path) -> None:
    first = write(tmp_path / "one.jsonl", [CONFORMS, WRONG], details=[details_of(WRONG, offsets(1))])
    second = write(tmp_path / "other.jsonl", [CONFORMS], {"arch": "aarch64"})
    out = tmp_path / "merged.jsonl"
    merge([first, second], out)
    assert out.read_text() == first.read_text() + second.read_text()
    assert rows.read_all(out) == (*rows.read_all(first), *rows.read_all(second))
    assert [[*part] for part in diagnostics.read(out, rows.read_all(out))] == [[WRONG.id], []]
    merge([out, write(tmp_path / "third.jsonl", [CONFORMS], {"torch": "2.14.0"})], out)
    assert len(rows.read_all(out)) == 3
    with pytest.raises(UsageError, match="merged from 3 rows files"):
        rows.read(out)


def test_a_merged_file_without_a_footer_is_truncated(tmp_path: Path) -> None:
    first, second = (
        write(tmp_path / "one.jsonl", [CONFORMS]),
        write(tmp_path / "other.jsonl", [CONFORMS], {"isa": "avx"}),
    )
    lines = [*first.read_text().splitlines(keepends=True)[:-1], *second.read_text().splitlines(keepends=True)]
    first.write_text("".join(lines))
    with pytest.raises(UsageError, match=r"one\.jsonl: truncated"):
        rows.read_all(first)
