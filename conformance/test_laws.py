"""The laws of engines on every claim, held against the ledger."""

from conformance.results.ledger import Verdict
from conformance.results.rows import Row
from conformance.test_conformance import hold

PROFILES = ("laws",)


def test_run(verdict: tuple[Row, Verdict]) -> None:
    """A run conforms, or deviates exactly as the ledger says."""
    hold(*verdict)
