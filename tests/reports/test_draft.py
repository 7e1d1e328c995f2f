"""Drafts of upstream reports, and the scripts that they have."""

from dataclasses import replace
from pathlib import Path

import pytest
from invocation import CONFORMS, LEDGER, WRONG, row, write

from conformance.__main__ import main
from conformance.commands.reports import script_of_a_run
from conformance.errors import UsageError
from conformance.paths import SCRIPTS
from conformance.reports import draft, support
from conformance.reports.load import Report
from conformance.repro.execution import execute
from conformance.results.findings.values import OutputShape
from conformance.results.ledger_file import load
from conformance.results.reproductions import Reproduced, record, script_of
from conformance.results.where import Where

SHAPE = (OutputShape("numerics", 0, (1,), (2,)),)
SHOWN = Reproduced("print('DEVIATES')\n", "expected 1\ngot 2\nDEVIATES numerics\n", ("PyTorch version: 2.13.0",))


def table(folder: Path, upstream: str, *, wrong: bool) -> support.Table:
    """A table with a linear layer that shows the finding `linear-is-off`."""
    (folder / "known.toml").write_text(LEDGER.replace('"pytorch/pytorch#1"', f'"{upstream}"'))
    shown = (
        row("nn.Linear", fails=["numerics"], findings=SHAPE, detail=f"numerics: {SHAPE[0].text}") if wrong else WRONG
    )
    return support.table(Report([write(folder / "rows.jsonl", [CONFORMS, shown])], [folder]))


def test_a_draft_has_what_an_upstream_issue_asks_for(tmp_path: Path) -> None:
    made = table(tmp_path, "unreported", wrong=True)
    text = draft.draft(made, made.findings["linear-is-off"], SHOWN)
    assert text.startswith(
        "# Linear is off\n\n### 🐛 Describe the bug\n\nThe kernel is off. Severity: wrong numbers, silently."
    )
    assert "```python\nprint('DEVIATES')\n```" in text
    assert "It prints:\n\n```\nexpected 1\ngot 2\nDEVIATES numerics\n```" in text
    assert "Engines that show it on x86_64 avx2, torch 2.13.0: fbgemm. Patterns: `nn.Linear` (static-quint8)." in text
    assert text.endswith("### Versions\n\nPyTorch version: 2.13.0\n")


def test_a_draft_says_why_it_is_a_bug_and_where_the_code_is(tmp_path: Path) -> None:
    made = table(tmp_path, "unreported", wrong=True)
    finding = replace(made.findings["linear-is-off"], why="It is off.", source="a/linear.cpp: apply")
    text = draft.draft(made, finding, SHOWN)
    assert "\n\nIt is off. The code is in `a/linear.cpp`, `apply`.\n\n" in text


def test_what_a_maintainer_would_close_has_no_draft(tmp_path: Path) -> None:
    made = table(tmp_path, "unreported", wrong=True)
    finding = replace(made.findings["linear-is-off"], no_report="It is meant so.")
    with pytest.raises(UsageError, match=r"linear-is-off: there is nothing to report: It is meant so\."):
        draft.draft(made, finding, SHOWN)
    assert draft.severe(replace(made, findings={**made.findings, finding.id: finding})) == []


def test_a_draft_shows_neither_the_id_of_a_run_nor_a_whole_tensor(tmp_path: Path) -> None:
    made = table(tmp_path, "unreported", wrong=True)
    output = "\n".join([*map(str, range(20)), "DEVIATES numerics"])
    shown = Reproduced('"""wrong: a/run@id\nExpected: another."""\n\nprint(1)\n', output, ("PyTorch version: 2.13.0",))
    text = draft.draft(made, made.findings["linear-is-off"], shown)
    assert "```python\nprint(1)\n```" in text
    assert "```\n0\n1\n2\n3\n... (16 lines more)\nDEVIATES numerics\n```" in text


def test_a_finding_that_no_claim_shows_has_no_draft(tmp_path: Path) -> None:
    made = table(tmp_path, "unreported", wrong=True)
    other = load(tmp_path)[0].finding.__class__("other", "It is off", "why", "unreported")
    with pytest.raises(UsageError, match="other: no claim of the support table shows it"):
        draft.draft(made, other, SHOWN)


@pytest.mark.parametrize(
    ("upstream", "wrong", "severe"),
    [("unreported", True, ["linear-is-off"]), ("unreported", False, []), ("pytorch/pytorch#1", True, [])],
)
def test_unreported_findings_with_wrong_numbers_or_worse_are_drafted(
    upstream: str, wrong: bool, severe: list[str], tmp_path: Path
) -> None:
    assert draft.severe(table(tmp_path, upstream, wrong=wrong)) == severe


def test_scripts_are_recorded_beside_others(tmp_path: Path) -> None:
    record({"one": "1", "two": "2"}, tmp_path / "scripts")
    record({"two": "3"}, tmp_path / "scripts")
    assert [script_of(name, tmp_path / "scripts") for name in ("one", "two", "three")] == ["1", "3", None]


def test_a_script_is_executed_without_this_project() -> None:
    script = (
        "import sys\ntry:\n    import conformance\nexcept ImportError:\n    print('DEVIATES alone')\n    sys.exit(1)\n"
    )
    executed = execute(script)
    assert executed.output == "DEVIATES alone\n"
    assert executed.versions[0].startswith("PyTorch version: ")


@pytest.mark.parametrize("script", ["print('CONFORMS')", "print('DEVIATES')", "raise SystemExit(1)"])
def test_a_script_that_does_not_show_it_is_refused(script: str) -> None:
    with pytest.raises(UsageError, match="the reproduction does not show it here: exit status"):
        execute(script)


def test_every_committed_script_is_of_a_finding() -> None:
    names = {path.stem for path in SCRIPTS.glob("*.py")}
    assert names
    assert names <= {entry.id for entry in load()}


def test_every_finding_that_is_worth_a_report_has_a_script_and_a_reason_in_sixty_lines() -> None:
    made = support.recorded(load())
    names = draft.severe(made)
    assert [name for name in names if not script_of(name)] == [], "tests/run_least_reproductions.py ROWS --write"
    assert [name for name in names if not made.findings[name].why] == []
    output = "expected 1\n" * draft.OUTPUT_SHOWN
    texts = {
        name: draft.draft(made, made.findings[name], Reproduced(script_of(name) or "", output, ("",))) for name in names
    }
    assert {name: lines for name, text in texts.items() if (lines := text.count("\n")) > 60} == {}
    assert [line.split(": ")[1] for line in draft.listed(made)] == names


def test_a_finding_without_a_stored_script_has_that_of_a_run() -> None:
    entries = [entry for entry in load() if entry.id == "add-alpha"]
    script = script_of_a_run(entries)
    assert "DEVIATES" in execute(script).output
    assert len(script.splitlines()) <= 40


def test_a_finding_has_the_script_of_a_run_of_rows_that_are_given() -> None:
    entries = [entry for entry in load() if entry.id == "add-alpha"]
    run = "qnnpack/torch.add+F.relu/static-qint8/ptq/alpha_2+matrix+other_zero_point+batch5/pairs@qnnpack"
    assert run in script_of_a_run(entries, [run])


def test_findings_of_rows_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(tmp_path, "unreported", wrong=True)
    assert main(["draft", "--rows", str(tmp_path / "rows.jsonl"), "--ledger", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "wrong numbers, silently: linear-is-off: Linear is off\n"


def test_a_finding_that_no_engine_here_shows_says_so() -> None:
    entries = [replace(entry, where=(Where.of({"pattern": "nothing"}),)) for entry in load() if entry.id == "add-alpha"]
    with pytest.raises(UsageError, match="add-alpha: no stored script, and no run of it"):
        script_of_a_run(entries)
