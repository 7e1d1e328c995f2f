"""The suite: every run of every claim, held against the ledger, and the ledger against the runs."""

from typing import Any

import pytest
import torch.ao.quantization.quantize_fx  # noqa: F401  (its import completes torch.ao.quantization)
from torch.ao.quantization import backend_config as torch_configs

from configs.parity import drift
from configs.registry import Backend

from .cases import Run
from .ledger import Entry, Verdict, unmatched
from .rows import Row


def test_run(run: Run, verdict: tuple[Row, Verdict]) -> None:
    """A run conforms, or deviates exactly as the ledger says."""
    row, held = verdict
    if row.verdict == "unavailable":
        pytest.skip(row.detail)
    if not held.expected:
        pytest.fail(
            f"{row.id}: {held.message or row.detail}. Reproduce: python -m conformance repro '{row.id}'", pytrace=False
        )
    if held.entries:
        pytest.xfail(f"{held.known}: {held.entries[0].reason}")


def test_config_is_torchs(config_of: Backend) -> None:
    """A registered backend's config is the one that torch ships, entry by entry; every difference is said."""
    theirs = getattr(torch_configs, f"get_{config_of.name}_backend_config")()
    differences = drift(config_of.factory(), theirs)
    if differences:
        pytest.fail(
            f"configs/ and torch's own {config_of.name} config differ:\n" + "\n".join(differences), pytrace=False
        )


def test_ledger_entry(ledger_entry: Entry, selection: Any) -> None:
    """An entry of the ledger speaks of this host and matches a run, or speaks of another host."""
    if unmatched([ledger_entry], selection.every_id, selection.host):
        pytest.fail(
            f"{ledger_entry.id} ({ledger_entry.source}) matches no run: {', '.join(ledger_entry.match)}", pytrace=False
        )
