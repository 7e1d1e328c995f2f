"""How bad a row is, and what is at fault, follow from its findings."""

import pytest
from invocation import row

from conformance.results.findings import KINDS, Finding
from conformance.results.findings.codes import SweptRaises
from conformance.results.findings.constraints import (
    ConversionViolates,
    IgnoredQConfigTrainsWeight,
    ViolatingQConfigUsed,
)
from conformance.results.findings.layers import LayerRaises, OperandOverwritten
from conformance.results.findings.relations import RelationValues, RelationVaries, RelationWrites
from conformance.results.findings.stability import RepetitionValues, WritesToInput
from conformance.results.findings.stages import Crashes, FurtherInputs, Raises, Undefined
from conformance.results.findings.structure import (
    ConvertsInside,
    LeftQuantized,
    NoEffect,
    NoQuantizedKernel,
    NotObserved,
    RanInFloat,
)
from conformance.results.findings.values import CodesDiffer, LowSqnr, OutputKind, OutputQparams, OutputShape
from conformance.results.rows import Row
from conformance.results.severity import OF_CHECK, OF_KIND, Component, Severity, assessment, assessments
from conformance.results.verdicts import Verdict


def of(kind: type[Finding], check: str, **values: object) -> Finding:
    """A finding of a kind; fields that are not given are empty."""
    finding = object.__new__(kind)
    for name, value in {"check": check, **values}.items():
        object.__setattr__(finding, name, value)
    return finding


def found(*findings: Finding, engine: str = "fbgemm") -> Row:
    """A row with these findings."""
    failed = {finding.check for finding in findings} - {"crashes"}
    verdict = Verdict.CRASHES if any(finding.check == "crashes" for finding in findings) else Verdict.DEVIATES
    made = row()
    return Row(
        **{
            **vars(made),
            "engine": engine,
            "verdict": verdict,
            "checks": dict.fromkeys(sorted(failed), "fail"),
            "findings": findings,
        }
    )


SEVERITIES = [
    (of(Crashes, "crashes"), Severity.CRASHES, Component.KERNEL),
    (of(WritesToInput, "stable"), Severity.CRASHES, Component.KERNEL),
    (of(RelationWrites, "stable"), Severity.CRASHES, Component.KERNEL),
    (of(OperandOverwritten, "stable"), Severity.CRASHES, Component.KERNEL),
    (of(CodesDiffer, "numerics"), Severity.WRONG, Component.KERNEL),
    (of(OutputQparams, "numerics"), Severity.WRONG, Component.KERNEL),
    (of(OutputShape, "numerics"), Severity.WRONG, Component.KERNEL),
    (of(LowSqnr, "accuracy"), Severity.WRONG, Component.KERNEL),
    (of(LeftQuantized, "lowered"), Severity.WRONG, Component.LOWERING),
    (of(RepetitionValues, "stable"), Severity.UNSTABLE, Component.KERNEL),
    (of(RelationValues, "stable"), Severity.UNSTABLE, Component.KERNEL),
    (of(RelationVaries, "stable"), Severity.UNSTABLE, Component.KERNEL),
    (of(RanInFloat, "lowered"), Severity.FLOAT, Component.LOWERING),
    (of(NoQuantizedKernel, "lowered"), Severity.FLOAT, Component.LOWERING),
    (of(ConvertsInside, "lowered"), Severity.FLOAT, Component.KERNEL),
    (of(NotObserved, "observed"), Severity.FLOAT, Component.PREPARE),
    (of(OutputKind, "numerics"), Severity.FLOAT, Component.KERNEL),
    (of(Raises, "observed", stage="prepare"), Severity.REFUSES, Component.PREPARE),
    (of(Raises, "lowered", stage="lower"), Severity.REFUSES, Component.LOWERING),
    (of(Raises, "lowered", stage="execute"), Severity.REFUSES, Component.KERNEL),
    (of(Raises, "stable", stage="state_dict"), Severity.REFUSES, Component.LOWERING),
    (of(SweptRaises, "lowered"), Severity.REFUSES, Component.KERNEL),
    (of(LayerRaises, "lowered"), Severity.REFUSES, Component.LOWERING),
    (of(CodesDiffer, "reference"), Severity.REFERENCE, Component.REFERENCE),
    (of(Raises, "reference", stage="reference execution"), Severity.REFERENCE, Component.REFERENCE),
    (of(ConversionViolates, "constraints"), Severity.ACCEPTS, Component.REFERENCE),
    (of(ViolatingQConfigUsed, "observed"), Severity.ACCEPTS, Component.PREPARE),
    (of(IgnoredQConfigTrainsWeight, "observed"), Severity.ACCEPTS, Component.PREPARE),
    (Undefined("undefined", "out-of-bounds"), Severity.CRASHES, Component.KERNEL),
    (Undefined("undefined", "uninitialized"), Severity.WRONG, Component.KERNEL),
    (of(NoEffect, "matched"), Severity.IDLE, Component.CONFIG),
    (of(Raises, "matched", stage="float"), Severity.IDLE, Component.CONFIG),
    (of(Raises, "lowered", stage="float"), Severity.IDLE, Component.CONFIG),
]


@pytest.mark.parametrize(
    ("finding", "severity", "component"), SEVERITIES, ids=lambda value: getattr(value, "kind", None)
)
def test_a_row_is_as_bad_as_its_finding(finding: Finding, severity: Severity, component: Component) -> None:
    worst = assessment(found(finding))
    assert worst is not None
    assert (worst.severity, worst.component, worst.check) == (severity, component, finding.check)


def test_every_severity_is_that_of_some_finding() -> None:
    assert {severity for _, severity, _ in SEVERITIES} == {*Severity}


def test_the_worst_finding_counts() -> None:
    mixed = found(of(NoEffect, "matched"), of(CodesDiffer, "numerics"), of(RanInFloat, "lowered"))
    assert [one.severity for one in sorted(assessments(mixed))] == [Severity.WRONG, Severity.FLOAT, Severity.IDLE]
    assert assessment(row()) is None


def test_numbers_are_wrong_because_of_lowering_where_it_left_the_operator_in_float() -> None:
    worst = assessment(found(of(CodesDiffer, "numerics"), of(RanInFloat, "lowered")))
    assert worst is not None
    assert worst.component is Component.LOWERING


def test_a_finding_that_only_names_inputs_is_not_assessed() -> None:
    further = found(of(OutputShape, "numerics"), of(FurtherInputs, "numerics"))
    assert [one.severity for one in assessments(further)] == [Severity.WRONG]


def test_the_kernels_of_a_program_are_a_runtimes() -> None:
    worst = assessment(found(of(CodesDiffer, "numerics"), engine="executorch"))
    assert worst is not None
    assert worst.component is Component.RUNTIME


def test_the_stage_that_refuses_is_named() -> None:
    worst = assessment(found(of(Raises, "lowered", stage="lower")))
    assert worst is not None
    assert worst.stage == "lower"


def test_a_failed_check_without_a_finding_is_assessed_by_its_name() -> None:
    old = Row(**{**vars(row()), "verdict": Verdict.DEVIATES, "checks": {"numerics": "fail"}, "findings": ()})
    worst = assessment(old)
    assert worst is not None
    assert (worst.severity, worst.component) == (Severity.WRONG, Component.KERNEL)


def test_a_check_without_a_row_has_wrong_numbers_of_a_kernel() -> None:
    for findings in ((), (CodesDiffer("finite", 0, 1, 9, 2, ()),)):
        fields = {**vars(row()), "verdict": Verdict.DEVIATES, "checks": {"finite": "fail"}, "findings": findings}
        worst = assessment(Row(**fields))
        assert worst is not None
        assert (worst.severity, worst.component) == (Severity.WRONG, Component.KERNEL)


def test_the_tables_name_kinds_and_checks_that_exist() -> None:
    assert OF_KIND.keys() <= KINDS.keys()
    assert {of.__dataclass_fields__["check"].name for of in KINDS.values()} == {"check"}
    assert {"numerics", "crashes", "matched"} <= OF_CHECK.keys()
