"""Whether constraints are enforced: every field that a dtype config sets, held against the ledger."""

from .ledger import Verdict
from .rows import Row
from .test_conformance import hold

PROFILES = ("constraints",)


def test_run(verdict: tuple[Row, Verdict]) -> None:
    """A run conforms, or deviates exactly as the ledger says."""
    hold(*verdict)
