"""The laws of engines on every claim, held against the ledger."""

from .ledger import Verdict
from .rows import Row
from .test_conformance import hold

PROFILES = ("laws",)


def test_run(verdict: tuple[Row, Verdict]) -> None:
    """A run conforms, or deviates exactly as the ledger says."""
    hold(*verdict)
