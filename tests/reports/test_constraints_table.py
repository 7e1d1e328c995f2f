"""The table of constraints says for each kind of operator what torch enforces, from the findings of rows."""

from dataclasses import replace

import pytest

from conformance.errors import UsageError
from conformance.reports import constraints as constraints_report
from conformance.results.findings import Finding, detail_of
from conformance.results.findings.constraints import (
    ConversionViolates,
    ConvertedViolation,
    IgnoredQConfigTrainsWeight,
    ObserverViolation,
    ViolatingQConfigUsed,
    Violation,
)
from conformance.results.known import Entry, KnownFinding
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict
from conformance.results.where import Where

BELOW = ConvertedViolation("weight", Violation("quant_min_lower_bound", -128, -127), "", "w", "")
BROKEN = ObserverViolation("quant_min_lower_bound", "quant_min", -128, -127)
USED = ViolatingQConfigUsed("observed", (BROKEN,), False, "QConfig()", BELOW)
TRAINED = IgnoredQConfigTrainsWeight("observed", "QConfig()")


def row(pattern: str, variant: str, *findings: Finding, **checks: str) -> Row:
    name = f"qnnpack/{pattern}/static-qint8/ptq/{variant}/constraints@qnnpack"
    checks = {"observed": "pass", "constraints": "pass", **{finding.check: "fail" for finding in findings}, **checks}
    return Row(
        name,
        "qnnpack",
        pattern,
        "static-qint8",
        "ptq",
        variant,
        "constraints",
        "qnnpack",
        Verdict.DEVIATES,
        checks,
        detail_of(findings),
        findings,
    )


GAP = KnownFinding("gap", "It is not checked", "why", "unreported")
ENTRY = Entry(
    GAP,
    (Where.of({"pattern": "nn.*", "variant": "weight.*", "profile": "constraints"}),),
    frozenset({"observed"}),
    "here",
)


def test_the_table_says_for_each_kind_of_operator_what_is_enforced() -> None:
    rows = [
        row("nn.Linear", "weight.quant_min_lower_bound", USED),
        row("F.linear", "weight.quant_min_lower_bound"),
        row("F.linear", "weight.scale_max_upper_bound", constraints="skip"),
    ]
    assert [*constraints_report.table(rows, [ENTRY])][2:] == [
        "| `quant_min_lower_bound` | weight | function | qnnpack 1 | enforced | yes | yes |",
        "| `quant_min_lower_bound` | weight | module | qnnpack 1 | enforced | no: `gap` | "
        "if the QConfig satisfies it, else no: `gap` |",
        "| `scale_max_upper_bound` | weight | function | qnnpack 1 | not enforced | no, as documented | no, as documented |",
    ]


def test_a_config_that_is_not_registered_has_lines_of_its_own() -> None:
    unregistered = replace(row("F.linear", "weight.quant_min_lower_bound"), backend="lone")
    assert [*constraints_report.table([row("F.linear", "weight.quant_min_lower_bound"), unregistered], [])][3:] == [
        "| `quant_min_lower_bound` | weight | function (lone) | lone 1 | enforced | yes | yes |"
    ]


def test_a_failure_without_a_ledger_entry_is_unlisted() -> None:
    rows = [row("F.linear", "weight.quant_min_lower_bound", ConversionViolates("constraints", BELOW, "QConfig()"))]
    assert [*constraints_report.table(rows, [ENTRY])][2].endswith("| yes | no: unlisted |")


def test_rows_without_constraints_make_no_table() -> None:
    with pytest.raises(UsageError, match=r"run conformance/test_constraints\.py"):
        [*constraints_report.table([], [])]


def test_weights_that_are_fake_quantized_by_an_ignored_qconfig_are_an_exception() -> None:
    (line,) = [*constraints_report.table([row("nn.Linear", "input.scale_min_lower_bound", TRAINED)], [])][2:]
    assert line.endswith("| but for weights in training: unlisted | yes |")
    (line,) = [*constraints_report.table([row("nn.Linear", "input.scale_min_lower_bound", USED, TRAINED)], [])][2:]
    assert "| no: unlisted |" in line


def test_a_shown_entry_is_quoted_with_the_findings_of_its_check() -> None:
    both = row("nn.Linear", "weight.quant_min_lower_bound", USED, ConversionViolates("constraints", BELOW, "QConfig()"))
    (shown,) = constraints_report.shown_entries([both], [ENTRY], {both.id: "repro it"})
    assert (shown.detail, shown.command) == (USED.text, "repro it")


def test_a_row_without_findings_is_quoted_as_it_is_and_leaves_the_consequence_unknown() -> None:
    old = replace(row("nn.Linear", "weight.quant_min_lower_bound", USED), findings=())
    (shown,) = constraints_report.shown_entries([old], [ENTRY], {old.id: "repro it"})
    assert shown.detail == old.detail
    (line,) = [*constraints_report.table([old], [ENTRY])][2:]
    assert line.endswith("| no: `gap` | if the QConfig satisfies it, else unknown: rows of schema 1 |")


def test_a_constraint_of_another_version_comes_last() -> None:
    rows = [row("F.linear", "bias.scale"), row("F.linear", "weight.quant_min_lower_bound")]
    assert [*constraints_report.table(rows, [])][3].startswith("| `bias.scale` |  | function |")
