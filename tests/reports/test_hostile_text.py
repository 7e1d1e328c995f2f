"""Hostile text in rows has no effect on terminals, in workflow commands, markdown or HTML."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from invocation import HOSTILE, details_of, offsets, row, write

from conformance.__main__ import main
from conformance.reports import ci, findings, html
from conformance.reports.load import Report


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A rows file, with diagnostics, whose texts are hostile."""
    name = HOSTILE.replace("/", "╱")
    hostile_row = row(name, variant=name, fails=["numerics"], message=HOSTILE, kernels=(HOSTILE,))
    linear = row("nn.Linear", fails=["numerics"], message=HOSTILE)
    header = {
        "cpu": HOSTILE,
        "torch": "2.13.0" + HOSTILE,
        "git": HOSTILE,
        "cpu_flags": [HOSTILE],
        "engines": {"fbgemm": HOSTILE},
    }
    shown = [
        details_of(hostile_row, offsets(1, output=HOSTILE), text=HOSTILE),
        replace(details_of(linear), reproduction=HOSTILE),
    ]
    path: Path = write(tmp_path / "rows.jsonl", [hostile_row, linear], header, shown)
    return path


def test_hostile_text_is_inert_on_terminals_and_in_workflow_commands(
    hostile: Path, ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean = write(tmp_path / "clean.jsonl", [row("nn.Linear")])
    for command in (
        ["diff", str(clean), str(hostile)],
        ["diff", str(clean), str(hostile), "--format", "markdown"],
        ["diff", str(clean), str(hostile), "--format", "json"],
        ["findings", str(hostile), "--ledger", str(ledger)],
        ["ci", "summary", str(hostile), "--ledger", str(ledger)],
        ["ci", "annotations", str(hostile), "--ledger", str(ledger)],
        ["ci", "badge", str(hostile), "--ledger", str(ledger)],
    ):
        main(command)
        out = capsys.readouterr().out
        assert "\x1b" not in out, command
        assert "\u202e" not in out, command
        assert "\u2028" not in out, command
        assert not re.search(r"^::(?!error title=fbgemm)", out, re.M), command


def test_hostile_text_makes_no_markup_in_markdown(hostile: Path, ledger: Path) -> None:
    report = Report([hostile], [ledger])
    for text in ("\n".join(findings.document(report)), ci.summary(report)):
        fences = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.M | re.S)
        outside = re.sub(r"`[^`\n]+`", "", fences)
        assert not re.search(r"<(?!/?(code|details|summary)>)", outside)
        assert "](https://example" not in outside
        assert "@someone" not in outside
        heads = next(line.count("|") for line in outside.splitlines() if line.startswith("| config"))
        for line in outside.splitlines():
            if line.startswith("| fbgemm"):
                assert len(re.findall(r"(?<!\\)\|", line)) == heads


def test_hostile_text_is_text_in_html(hostile: Path, ledger: Path, tmp_path: Path) -> None:
    report = Report([hostile], [ledger])
    html.write(report, tmp_path / "report")
    for page in (tmp_path / "report").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<script>document" not in text
        assert "<img" not in text
        assert "{{ 49 }}" not in text
        assert "\x1b" not in text
    for script in (tmp_path / "report" / "data").glob("*.js"):
        assert script.read_bytes().isascii()
