"""A row that is covered by its features names what covers it: readers of rows files do not know the features."""

from dataclasses import replace

import pytest

from conformance.results.known import Entry, Host, KnownFinding
from conformance.results.ledger import judge_recorded
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict
from conformance.results.where import Where

HOST = Host("2.13.0", "x86_64", "avx2")
ENTRY = Entry(KnownFinding("an-entry", "", "", ""), (Where.of({"profile": "exact"}),), frozenset({"numerics"}), "")
OWN = replace(
    ENTRY, finding=KnownFinding("its-own", "", "", ""), where=(Where.of({"pattern": "nn.Conv2d", "profile": "pairs"}),)
)
LEDGER = {entry.id: [entry] for entry in (ENTRY, OWN)}


def row(profile: str, *, fails: bool, known: str | None) -> Row:
    fields = {
        "backend": "fbgemm",
        "pattern": "nn.Conv2d",
        "dtype_config": "static-quint8",
        "flow": "ptq",
        "variant": "stride_2",
    }
    name = f"fbgemm/nn.Conv2d/static-quint8/ptq/stride_2/{profile}@x86"
    checks = {"numerics": "fail" if fails else "pass"}
    verdict = Verdict.DEVIATES if fails else Verdict.CONFORMS
    return Row(name, **fields, profile=profile, engine="x86", verdict=verdict, checks=checks, known=known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fails", "known", "expected"),
    [
        (True, "an-entry", True),
        (True, None, False),
        (True, "an-entry-that-is-gone", False),
        (False, None, True),
    ],
)
def test_an_outcome_is_expected_if_the_row_names_an_entry_of_the_ledger(
    fails: bool, known: str | None, expected: bool
) -> None:
    found = judge_recorded(row("pairs", fails=fails, known=known), (), LEDGER, HOST)
    assert found.expected is expected
    assert found.known == (known if expected else None)


@pytest.mark.parametrize("fails", [True, False])
def test_an_entry_that_names_the_profile_has_to_be_right(fails: bool) -> None:
    found = judge_recorded(row("pairs", fails=fails, known="its-own" if fails else None), (OWN,), LEDGER, HOST)
    assert found.expected is fails
    assert found.entries == (OWN,)


def test_a_row_of_another_profile_is_compared_with_the_conditions_alone() -> None:
    assert not judge_recorded(row("exact", fails=True, known="an-entry"), (), LEDGER, HOST).expected
    assert judge_recorded(row("exact", fails=True, known=None), (ENTRY,), LEDGER, HOST).expected
    assert not judge_recorded(row("exact", fails=False, known=None), (ENTRY,), LEDGER, HOST).expected
