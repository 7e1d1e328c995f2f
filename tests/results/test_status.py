"""The status of a claim follows from its rows: in default use, and under every option."""

from dataclasses import replace

import pytest
from invocation import row

from conformance.results.findings.values import OutputShape
from conformance.results.rows import Row
from conformance.results.severity import Severity
from conformance.results.status import STATUSES, Support, form_of, sentences, status_of, statuses, tally
from conformance.results.verdicts import Verdict

CLAIM = "fbgemm/nn.ReLU/static-quint8"


def wrong(**changes: str) -> Row:
    """A row of nn.ReLU with wrong numbers."""
    made = row(variant=changes.get("variant", "default"))
    findings = (OutputShape("numerics", 0, (1,), (2,)),)
    values = {
        "verdict": Verdict.DEVIATES,
        "checks": {**made.checks, "numerics": "fail"},
        "findings": findings,
        **changes,
    }
    return Row(**{**vars(made), **values})


def raises(variant: str = "default", profile: str = "exact") -> Row:
    made: Row = replace(row(fails=["lowered"], variant=variant), profile=profile)
    return made


@pytest.mark.parametrize(
    ("rows", "status", "works"),
    [
        ([row()], Support.WORKS, True),
        ([row(), row(variant="large")], Support.WORKS, True),
        ([row(), raises("large")], Support.EXCEPT, True),
        ([row(), raises(profile="in_use")], Support.EXCEPT, True),
        ([raises(), row(variant="large")], Severity.REFUSES, False),
        ([row(), raises(profile="typical")], Severity.REFUSES, False),
        ([raises(), wrong(profile="typical")], Severity.WRONG, False),
        ([raises(), wrong(variant="large")], Severity.REFUSES, False),
        ([row(verdict="unavailable")], Support.UNAVAILABLE, False),
        ([row(), row(profile="typical", verdict="unjudged")], Support.UNAVAILABLE, False),
        ([wrong(), row(profile="typical", verdict="unjudged")], Severity.WRONG, False),
        ([row(), row(variant="large", verdict="unjudged")], Support.WORKS, True),
        ([row(), row(variant="large", verdict="unavailable")], Support.WORKS, True),
        ([row(variant="large")], Support.UNAVAILABLE, False),
        ([raises("large")], Support.UNAVAILABLE, False),
    ],
)
def test_the_status_of_a_claim(rows: list[Row], status: object, works: bool) -> None:
    found = status_of(CLAIM, rows)
    assert (found.status, found.works) == (status, works)


def test_exceptions_are_named_by_form_the_worst_first() -> None:
    named = [wrong(variant="large", form="alpha=2"), raises("large"), raises("two_layers"), raises("two_layers")]
    found = status_of(CLAIM, [row(), *named])
    assert [(one.form, one.assessment.severity) for one in found.exceptions] == [
        ("alpha=2", Severity.WRONG),
        ("large", Severity.REFUSES),
        ("two layers", Severity.REFUSES),
    ]
    assert found.worst is found.exceptions[0]


def test_what_the_mapping_leaves_in_float_says_nothing_about_the_claim() -> None:
    unasked = wrong(variant="unasked", profile="contexts")
    assert status_of("a", [row(), unasked]).status is Support.EXCEPT
    of_mapping = replace(unasked, checks={**unasked.checks, "asked": "fail"})
    assert status_of("a", [row(), of_mapping]).status is Support.WORKS


def test_a_row_without_a_form_is_named_by_its_variant() -> None:
    assert form_of(row(variant="padding_same")) == "padding same"
    assert form_of(replace(row(variant="padding_same"), form="padding='same'")) == "padding='same'"


def test_claims_are_counted_by_status_and_sentences_say_so() -> None:
    others = [replace(one, pattern=f"nn.{number}") for number, one in enumerate((wrong(), raises(), row()))]
    counts = tally(statuses([row(), raises("large"), *others]).values())
    assert (counts.claims, counts.works, counts.in_every_form, counts.executed) == (4, 2, 1, 4)
    assert [*counts.statuses] == [*STATUSES]
    assert [*sentences("fbgemm", counts)] == [
        "fbgemm: 2 of 4 claims work in default use, 1 in every form",
        "fbgemm: in default use: wrong numbers, silently: 1; refuses: 1",
        "fbgemm: under some option: refuses: 1",
    ]


def test_a_backend_that_works_has_one_sentence() -> None:
    assert [*sentences("fbgemm", tally(statuses([row()]).values()))] == [
        "fbgemm: 1 of 1 claims work in default use, 1 in every form"
    ]


def test_of_a_selection_only_the_forms_that_ran_are_spoken_of() -> None:
    (sentence,) = sentences("fbgemm", tally(statuses([row()]).values()), whole=False)
    assert sentence == "fbgemm: 1 of 1 claims work in default use, 1 in every form that ran"


def test_a_selection_without_default_use_does_not_say_that_claims_work() -> None:
    counts = tally(statuses([raises("large"), replace(row(variant="large"), pattern="nn.ELU")]).values())
    assert [*sentences("fbgemm", counts)] == [
        "fbgemm: 2 claims, none of them executed in default use",
        "fbgemm: under some option: refuses: 1",
    ]
