"""The suite: every run of every claim, held against the ledger, and the ledger against the runs."""

from typing import Any

import pytest

from .cases import Run
from .ledger import Entry, Verdict, unmatched
from .rows import Row


def test_run(run: Run, verdict: tuple[Row, Verdict]) -> None:
    """A run conforms, or deviates exactly as the ledger says."""
    row, held = verdict
    if row.verdict == "unavailable":
        pytest.skip(row.detail)
    if not held.expected:
        pytest.fail(f"{row.id}: {held.message or row.detail}. Reproduce: python -m conformance repro '{row.id}'", pytrace=False)
    if held.entries:
        pytest.xfail(f"{held.known}: {held.entries[0].reason}")


def test_ledger_entry(ledger_entry: Entry, selection: Any) -> None:
    """An entry of the ledger speaks of this host and matches a run, or speaks of another host."""
    if unmatched([ledger_entry], selection.every_id, selection.host):
        pytest.fail(f"{ledger_entry.id} ({ledger_entry.source}) matches no run: {', '.join(ledger_entry.match)}", pytrace=False)
