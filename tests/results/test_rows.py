"""Rows files: written, read back, counted, and free of contradictions."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from invocation import DIES, HEADER, ROWS, full_row, row, write, wrong

from conformance.errors import UsageError
from conformance.results.findings import detail_of
from conformance.results.profiles import EXACT, PROFILES
from conformance.results.rows import Row, Writer, contradiction, counts, read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "rows.jsonl"


def test_rows_are_read_back(path: Path) -> None:
    file = read(write(path, ROWS))
    assert file.rows == tuple(sorted(ROWS, key=lambda row: row.id))
    assert {key: file.header[key] for key in HEADER} == HEADER
    assert file.footer["rows"] == 3
    assert file.footer["seconds"] == 1.5


def test_the_footer_states_when_the_invocation_finished(path: Path) -> None:
    assert read(write(path, ROWS, finished="2026-01-02T03:04:05+00:00")).finished == "2026-01-02T03:04:05+00:00"
    writer = Writer(path, HEADER)
    writer.finish({})
    assert datetime.fromisoformat(read(path).finished or "").utcoffset() == timedelta()


def test_a_file_of_an_earlier_version_does_not_state_when_it_finished(path: Path) -> None:
    *lines, footer = write(path, ROWS).read_text(encoding="utf-8").splitlines()
    values = {name: value for name, value in json.loads(footer).items() if name != "finished"}
    path.write_text("\n".join([*lines, json.dumps(values)]) + "\n", encoding="utf-8")
    assert read(path).finished is None
    assert len(read(path).rows) == 3


def test_rows_are_sorted_by_id(path: Path, tmp_path: Path) -> None:
    file = read(write(path, ROWS))
    assert [row.id for row in file.rows] == sorted(row.id for row in ROWS)
    reversed_file = write(tmp_path / "other.jsonl", ROWS[::-1])
    assert reversed_file.read_bytes() == path.read_bytes()


def test_the_file_appears_only_when_it_is_complete(path: Path) -> None:
    writer = Writer(path, HEADER)
    writer.add(ROWS[0])
    assert not path.exists()
    writer.finish({})
    assert [file.name for file in path.parent.iterdir()] == ["rows.jsonl"]


def test_an_earlier_file_is_kept_until_the_new_one_is_complete(path: Path) -> None:
    before = write(path, ROWS).read_bytes()
    writer = Writer(path, HEADER)
    writer.add(ROWS[0])
    assert path.read_bytes() == before
    writer.finish({})
    assert read(path).rows == (ROWS[0],)


def test_an_invocation_that_dies_leaves_every_row_in_the_partial_file(path: Path) -> None:
    writer = Writer(path, HEADER)
    for sample in ROWS:
        writer.add(sample)
    aside = path.with_name("rows.jsonl.partial")  # the writer is still open, as in a process that is killed
    lines = [json.loads(line) for line in aside.read_text(encoding="utf-8").splitlines()]
    assert [line["kind"] for line in lines] == ["header", "row", "row", "row"]
    assert [line["id"] for line in lines[1:]] == [sample.id for sample in ROWS]
    with pytest.raises(UsageError, match=r"rows\.jsonl\.partial: truncated"):
        read(aside)


def test_executed_counts_rows_that_are_not_unavailable(path: Path) -> None:
    writer = Writer(path, HEADER)
    for sample in (*ROWS, DIES):
        writer.add(sample)
    assert writer.executed == 3


def test_a_value_that_is_not_json_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Writer(path, HEADER).add(row(sqnr_db=float("nan")))


def test_a_directory_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken.jsonl").mkdir()
    with pytest.raises(UsageError, match=r"--results .*taken\.jsonl: is a directory"):
        Writer(tmp_path / "taken.jsonl", HEADER)
    assert [file.name for file in tmp_path.iterdir()] == ["taken.jsonl"]


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--results .*file/rows\.jsonl: .*name a file that can be written"):
        Writer(tmp_path / "file" / "rows.jsonl", HEADER)


@pytest.mark.parametrize("profile", [name for name, profile in PROFILES.items() if profile.has_rows])
def test_a_row_of_every_profile_is_read_back(profile: str, path: Path) -> None:
    of_profile = row(profile=profile, checks=dict.fromkeys(PROFILES[profile].checks, "pass"))
    assert read(write(path, [of_profile])).rows == (of_profile,)


def test_a_crash_counts_as_a_failed_check_of_that_name() -> None:
    assert replace(DIES, checks={"numerics": "fail"}).failed == {"crashes", "numerics"}
    assert full_row().failed == {"numerics"}
    assert row().failed == frozenset()


def test_counts_are_by_verdict_by_check_and_by_engine() -> None:
    counted = counts(
        [*ROWS, row("nn.ELU", verdict="crashes", engine="x86"), replace(full_row(), engine="x86", known=None)]
    )
    assert counted == {
        "rows": 5,
        "verdicts": {"conforms": 1, "deviates": 2, "crashes": 1, "unavailable": 1},
        "checks": {**dict.fromkeys(EXACT.checks, 0), "numerics": 2},
        "engines": {"fbgemm": {"conforms": 1, "deviates": 1, "unavailable": 1}, "x86": {"crashes": 1, "deviates": 1}},
        "known": 1,
    }


def test_a_finding_for_every_failed_check_is_no_contradiction() -> None:
    assert contradiction(full_row()) == contradiction(DIES) == contradiction(row()) == ""


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (replace(full_row(), detail="numerics: another sentence"), "its findings render as 'numerics: 3 of 32 codes"),
        (replace(full_row(), findings=(wrong("stable"),)), "numerics fails without a finding"),
        (
            replace(full_row(), findings=(*full_row().findings, wrong("stable"))),
            "a finding of stable, which does not fail",
        ),
        (replace(row(), findings=(wrong("stable"),)), "a finding of stable, which does not fail"),
    ],
)
def test_findings_that_contradict_the_row_are_named(damaged: Row, message: str) -> None:
    assert message in contradiction(damaged)
    assert contradiction(damaged, findings=False) == ""


def test_a_failed_check_needs_a_finding() -> None:
    assert contradiction(replace(full_row(), findings=())) == "numerics fails without a finding"
    assert contradiction(replace(DIES, findings=())) == "crashes fails without a finding"
    assert contradiction(full_row()) == contradiction(row()) == ""


def test_a_skipped_check_may_have_a_finding() -> None:
    """The documentation leaves it open whether some constraints are enforced."""
    finding = wrong("constraints")
    skips = replace(
        row(), checks={**row().checks, "constraints": "skip"}, findings=(finding,), detail=detail_of((finding,))
    )
    assert contradiction(skips) == ""
