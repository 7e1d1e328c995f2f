"""The suite: every run of every claim, held against the ledger, and the ledger against the runs."""

from typing import Any

import pytest
import torch.ao.quantization.quantize_fx  # noqa: F401  (its import completes torch.ao.quantization)
from torch.ao.quantization import backend_config as torch_configs

from conformance.configs.parity import drift
from conformance.configs.registry import Backend
from conformance.results.ledger import Entry, Verdict
from conformance.results.profiles import CASES
from conformance.results.rows import Row, repro_command

PROFILES = CASES
"""Profiles of the runs that this module takes."""


def hold(row: Row, held: Verdict) -> None:
    """Pass a run that conforms, and xfail one that deviates exactly as the ledger says."""
    if row.verdict == "unavailable":
        pytest.skip(row.detail)
    if not held.expected:
        pytest.fail(f"{row.id}: {held.message or row.detail}. Reproduce: {repro_command(row.id)}", pytrace=False)
    if held.entries:
        pytest.xfail(f"{held.known}: {held.entries[0].reason}")


def test_run(verdict: tuple[Row, Verdict]) -> None:
    """A run conforms, or deviates exactly as the ledger says."""
    hold(*verdict)


def test_config_is_torchs(config_of: Backend) -> None:
    """The config of a registered backend equals the one that torch ships, entry by entry."""
    theirs = getattr(torch_configs, f"get_{config_of.name}_backend_config", None)
    if theirs is None:
        pytest.skip(f"torch ships no config of {config_of.name}")
    differences = drift(config_of.factory(), theirs())
    if differences:
        pytest.fail(
            f"configs/ and torch's own {config_of.name} config differ:\n" + "\n".join(differences), pytrace=False
        )


def test_ledger_entry(ledger_entry: Entry, selection: Any) -> None:
    """Each glob of an entry matches a run, and no other entries say all that it says; or it speaks of another host."""
    if wrong := selection.useless.get(ledger_entry.id):
        pytest.fail(f"{ledger_entry.id} ({ledger_entry.source}) {wrong}", pytrace=False)
