"""The laws of engines on every claim, held against the ledger."""

from conformance.results.ledger import Expectation
from conformance.results.rows import Row
from conformance.test_conformance import hold

PROFILES = ("laws",)


def test_run(verdict: tuple[Row, Expectation]) -> None:
    """A run conforms, or deviates exactly as the ledger says."""
    hold(*verdict)
