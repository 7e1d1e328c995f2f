"""Whether constraints are enforced: every field that a dtype config sets, held against the ledger."""

from conformance.results.ledger import Expectation
from conformance.results.rows import Row
from conformance.test_conformance import hold

PROFILES = ("constraints",)


def test_run(verdict: tuple[Row, Expectation]) -> None:
    """A run conforms, or deviates exactly as the ledger says."""
    hold(*verdict)
