"""Findings in markdown, job summaries, annotations and badges."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from invocation import CONFORMS, DIES, WRONG, details_of, row, write

from conformance.__main__ import main
from conformance.errors import UsageError
from conformance.markdown import code, escaped, fenced, plain
from conformance.reports import ci, findings, html
from conformance.reports.load import Report
from conformance.results import diagnostics, rows


def test_findings_say_what_is_wrong_how_badly_and_where(ledger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [CONFORMS, WRONG, DIES], details=[details_of(WRONG)])
    text = "\n".join(findings.document(Report([path], [ledger])))
    assert "## New: 1 run that the ledger does not expect" in text
    assert "## Known: 1 finding, the most important first" in text
    assert "### Linear is off\n\nThe kernel is off.\n\n- `linear-is-off`: refuses (execute); at fault: kernel; " in text
    assert "upstream: [pytorch/pytorch&#35;1](https://github.com/pytorch/pytorch/issues/1)" in text
    assert "- Shows in default use of 1 claim; 1 run (fbgemm on x86_64 avx2: 1)" in text
    assert "print('DEVIATES')" not in text


def test_findings_in_full_have_the_reproduction_of_the_worst_run(ledger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [WRONG], details=[details_of(WRONG)])
    text = "\n".join(findings.document(Report([path], [ledger]), full=True))
    assert "```python\nprint('DEVIATES')\n```" in text
    bare = write(tmp_path / "bare.jsonl", [WRONG])
    assert f"python -m conformance repro '{WRONG.id}'" in "\n".join(
        findings.document(Report([bare], [ledger]), full=True)
    )


def test_commands_have_the_options_of_the_invocation(ledger: Path, tmp_path: Path) -> None:
    header = {"options": ["--engine", "mine:Engine"], "isa_limit": "avx2"}
    path = write(tmp_path / "rows.jsonl", [WRONG], header)
    command = f"python -m conformance repro --engine mine:Engine --isa avx2 '{WRONG.id}'"
    assert command in "\n".join(findings.document(Report([path], [ledger]), full=True))


def test_a_summary_begins_with_new_runs_and_is_cut_with_a_note(ledger: Path, tmp_path: Path) -> None:
    known = [row("nn.Linear", variant=f"v{number}", fails=["numerics"]) for number in range(500)]
    path = write(tmp_path / "rows.jsonl", [*known, DIES])
    whole = ci.summary(Report([path], [ledger]))
    assert whole.index("nn.GRU") < whole.index("linear-is-off") < whole.index("/v499/")
    cut = ci.summary(Report([path], [ledger]), 10_000)
    assert len(cut.encode()) <= 10_000
    assert "nn.GRU" in cut
    assert re.search(r"… and \d+ lines more: the rows files have everything\.\n$", cut)


def test_annotations_name_new_runs_and_count_the_others(ledger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [row(variant=f"v{number}", fails=["stable"]) for number in range(12)])
    lines = [*ci.annotations(Report([path], [ledger]))]
    assert lines[0].startswith(
        "::error title=fbgemm/nn.ReLU/static-quint8/ptq/v0/exact@fbgemm::stable: execute raises RuntimeError: it is wrong"
    )
    assert lines[10:] == ["::notice::and 2 more: the job summary has all"]


@pytest.mark.parametrize(
    ("file_rows", "message", "color"),
    [
        ([CONFORMS], "1 of 1 claims work in default use", "brightgreen"),
        ([CONFORMS, WRONG], "1 of 2 claims work in default use", "green"),
        ([CONFORMS, DIES], "1 of 2 claims work in default use, 1 run new", "red"),
        ([row(verdict="unavailable")], "nothing executed", "lightgrey"),
    ],
)
def test_a_badge_counts_the_claims_that_work(
    file_rows: Any, message: str, color: str, ledger: Path, tmp_path: Path
) -> None:
    badge = ci.badge(Report([write(tmp_path / "rows.jsonl", file_rows)], [ledger]))
    assert badge == {"schemaVersion": 1, "label": "conformance", "message": message, "color": color}


def test_schemas_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for name, schema in (("rows", rows.schema()), ("details", diagnostics.schema())):
        assert main(["schema", name]) == 0
        assert json.loads(capsys.readouterr().out) == schema
        jsonschema.Draft202012Validator.check_schema(schema)


def test_a_folder_with_other_content_is_refused(ledger: Path, tmp_path: Path) -> None:
    report = Report([write(tmp_path / "rows.jsonl", [CONFORMS])], [ledger])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty, and no report"):
        html.write(report, tmp_path / "mine")
    first = html.write(report, tmp_path / "report")
    (tmp_path / "report" / "data" / "99.js").write_text("old")
    assert html.write(report, tmp_path / "report") == first
    assert not (tmp_path / "report" / "data" / "99.js").exists()


def test_markdown_text_is_escaped() -> None:
    assert escaped("x86_64: 3 of 8 codes differ (37%)") == "x86_64: 3 of 8 codes differ (37%)"
    assert escaped("a|b <b> *c* _d_ [e](f)") == r"a\|b &lt;b&gt; \*c\* \_d\_ \[e\](f)"
    assert code("a`b|c") == r"<code>a&#96;b\|c</code>"
    assert plain("a\x1b[31m\nb") == "a\\u001b[31m b"
    assert next(fenced("```\nx", "python")) == "````python"
