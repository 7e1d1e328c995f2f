"""Entries for fixed runs cover runs that are like them, unless those have a feature that an entry excludes."""

from dataclasses import replace

import pytest

from conformance.cases.claims import backend
from conformance.cases.runs import Run, describe, runs
from conformance.execution.likeness import Likeness
from conformance.results.findings.values import CodesDiffer, Element, OutputQparams
from conformance.results.known import Entry, KnownFinding
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict

ENTRY = Entry(
    KnownFinding("listed", "", "", ""), ("*/nn.ConvTranspose1d/*/*/default/exact@*",), frozenset({"numerics"}), ""
)
CODES = CodesDiffer("numerics", 0, 1, 9, 2, (Element((0,), 5.0, 3.0),))
QPARAMS = OutputQparams("numerics", 0, 0.5, 3, "quint8", 0.25, 3, "quint8")


@pytest.fixture(scope="module")
def pairs() -> dict[str, Run]:
    """The runs of the profile `pairs` of a transposed convolution, by their variants."""
    claims = backend("onednn")
    found = runs(claims, ["onednn"], ["onednn/nn.ConvTranspose1d/static-quint8/*"])
    return {one.variant.name: one for one in found if one.profile == "pairs" and one.variant is not None}


def row_of(run: Run) -> Row:
    return Row(**describe(run), verdict=Verdict.DEVIATES, checks={"numerics": "fail"}, findings=(CODES,))


def test_an_entry_covers_a_run_with_more_features(pairs: dict[str, Run]) -> None:
    run = pairs["channels_16x16"]
    assert Likeness([ENTRY]).known(run, row_of(run)) >= {"numerics"}


def test_an_entry_does_not_cover_a_run_with_a_feature_that_it_excludes(pairs: dict[str, Run]) -> None:
    likeness = Likeness([replace(ENTRY, unless=frozenset({"equal_channels"}))])
    equal, unequal = pairs["channels_16x16"], pairs["channels_33x17"]
    assert "numerics" not in likeness.known(equal, row_of(equal))
    assert "numerics" in likeness.known(unequal, row_of(unequal))
    assert likeness.covering(equal, frozenset({"numerics"})) == []


def test_an_entry_covers_findings_of_its_kinds_alone(pairs: dict[str, Run]) -> None:
    run, likeness = pairs["channels_33x17"], Likeness([replace(ENTRY, kind=("output-qparams",))])
    assert "numerics" not in likeness.known(run, row_of(run))
    assert "numerics" in likeness.known(run, replace(row_of(run), findings=(QPARAMS,)))
