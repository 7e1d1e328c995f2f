"""Runs that check metamorphic relations of every claim, judged against the ledger."""

from conformance.results.ledger import Expectation
from conformance.results.rows import Row
from conformance.test_conformance import assert_expected

PROFILES = ("laws",)


def test_run(verdict: tuple[Row, Expectation, str]) -> None:
    """A run conforms, or deviates exactly as the ledger says."""
    assert_expected(*verdict)
