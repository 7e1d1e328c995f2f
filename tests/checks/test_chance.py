"""Findings of a run whose outputs differ from run to run hold no figure of one run."""

import dataclasses

import pytest

from conformance.checks.judge import vary, without_chance
from conformance.results.findings import Finding, detail_of
from conformance.results.findings.stability import RepetitionShape, RepetitionValues, WritesToInput
from conformance.results.findings.stages import Raises
from conformance.results.findings.values import CodesDiffer, Element, LowSqnr, ValuesDiffer

ELEMENTS = (Element((0, 1), 1.0, 8.0, 8.25), Element((2, 1), 0.0, 1.0))
CODES = CodesDiffer("numerics", 0, 3, 9, 7, ELEMENTS)
SECOND_RUN = RepetitionValues("stable", "second run", 5, 9)
RELOADED = RepetitionValues("stable", "state_dict", 2, 9)
CHANNELS_LAST = RepetitionValues("stable", "channels_last", 9, 9)


def detail(*findings: Finding) -> str:
    return detail_of(without_chance(findings))


def test_figures_and_changes_that_follow_a_second_run_are_left_out() -> None:
    findings = (CODES, LowSqnr("accuracy", -4.8, 20.0), SECOND_RUN, RELOADED, CHANNELS_LAST)
    assert detail(*findings) == (
        "numerics: the codes differ from run to run; accuracy: SQNR is below 20 dB; stable: second run changes values"
    )


def test_codes_of_later_outputs_have_no_figures_and_those_of_the_reference_model_keep_theirs() -> None:
    reference = dataclasses.replace(CODES, check="reference")
    later = dataclasses.replace(CODES, output=1)
    assert detail(reference, later, SECOND_RUN) == (
        "reference: the reference model's 3 of 9 codes differ (33.3%), by up to 7 steps: "
        "(0, 1) got 1 golden 8 exact 8.25 | (2, 1) got 0 golden 1; "
        "numerics: output 1: the codes differ from run to run; stable: second run changes values"
    )


def test_a_repetition_that_does_not_directly_follow_is_kept_without_figures() -> None:
    shape = RepetitionShape("stable", "another call", (1, 8))
    assert detail(SECOND_RUN, shape, RELOADED) == (
        "stable: second run changes values; another call changes the shape to (1, 8); state_dict changes values"
    )
    assert detail(RepetitionShape("stable", "second run", (1, 8)), RELOADED) == (
        "stable: second run changes the shape to (1, 8); state_dict changes values"
    )


@pytest.mark.parametrize(
    "finding",
    [
        WritesToInput("stable", "quantized.relu", 0),
        Raises("stable", "state_dict", "KeyError", "'scale'"),
        ValuesDiffer("numerics", 0, 3, 9, 0.5, ELEMENTS),
    ],
)
def test_other_findings_stay_as_they_are(finding: Finding) -> None:
    assert [*without_chance([finding])] == [finding]


@pytest.mark.parametrize(
    ("finding", "varies"),
    [
        (SECOND_RUN, True),
        (dataclasses.replace(SECOND_RUN, changed=None, total=None), True),
        (RepetitionShape("stable", "second run", (1,)), True),
        (RELOADED, False),
        (Raises("stable", "second run", "ValueError", "bad"), False),
        (CODES, False),
    ],
)
def test_outputs_vary_if_a_second_run_changes_them(finding: Finding, varies: bool) -> None:
    assert vary([CODES, finding]) is varies
    assert vary(without_chance([CODES, finding])) is varies
