"""Rows files of schema 1, which have no findings, are read by every command, and merge with files of this schema."""

import json
import shutil
from pathlib import Path

import pytest
from invocation import HEADER, ROWS, write

from conformance.__main__ import main
from conformance.errors import UsageError
from conformance.results.rows import read, read_all
from conformance.results.verdicts import Verdict

SAMPLE = Path(__file__).with_name("schema1.jsonl")


def test_rows_of_every_profile_are_read_with_their_details_and_without_findings() -> None:
    file = read(SAMPLE)
    assert file.header["schema"] == 1
    assert {row.profile for row in file.rows} == {"exact", "typical", "constraints", "laws"}
    assert {row.verdict for row in file.rows} == {Verdict.CRASHES, Verdict.DEVIATES, Verdict.CONFORMS}
    assert all(bool(row.detail) == row.verdict.fails for row in file.rows)
    assert not any(row.findings for row in file.rows)


def test_a_damaged_row_is_refused_as_one_of_schema_2_is(tmp_path: Path) -> None:
    lines = SAMPLE.read_text(encoding="utf-8").splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), "engine": "x86"})
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"rows\.jsonl:2: damaged row .*: its fields are those of"):
        read(tmp_path / "rows.jsonl")


def test_schema_2_requires_findings_where_schema_1_does_not(tmp_path: Path) -> None:
    text = SAMPLE.read_text(encoding="utf-8").replace('"schema": 1', '"schema": 2')
    (tmp_path / "rows.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"rows\.jsonl:2: damaged row .*: missing field findings"):
        read(tmp_path / "rows.jsonl")


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["report", "{rows}", "-o", "{out}/report"], "index.html"),
        (["findings", "{rows}"], "12 of 16 codes differ"),
        (["diff", "{rows}", "{rows}"], "9 runs compared: 0 changes"),
        (["ci", "summary", "{rows}"], "# Conformance"),
        (["ci", "badge", "{rows}"], "claims work in default use"),
        (["ci", "annotations", "{rows}"], ""),
        (["constraints", "{rows}"], "weight has code -128"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else "",
)
def test_every_command_reads_it(
    arguments: list[str], output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copy(SAMPLE, tmp_path / "rows.jsonl"))
    assert main([argument.format(rows=path, out=tmp_path) for argument in arguments]) == 0
    assert output in capsys.readouterr().out


def test_files_of_both_schemas_merge(tmp_path: Path) -> None:
    new = write(tmp_path / "two.jsonl", ROWS, {"arch": "aarch64"})
    out = tmp_path / "merged.jsonl"
    assert main(["merge", str(SAMPLE), str(new), "-o", str(out)]) == 0
    assert read_all(out) == (*read_all(SAMPLE), *read_all(new))
    assert [part.header["schema"] for part in read_all(out)] == [1, 3]
    assert HEADER["suite"] == read_all(out)[1].header["suite"]
