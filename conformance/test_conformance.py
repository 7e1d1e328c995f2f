"""Runs of every claim judged against the ledger, ledger entries checked against the runs, configs against torch's."""

import pytest
import torch.ao.quantization.quantize_fx  # noqa: F401  (its import completes torch.ao.quantization)
from torch.ao.quantization import backend_config as torch_configs

from conformance.configs.parity import drift
from conformance.configs.registry import Backend
from conformance.results.known import Entry
from conformance.results.ledger import Expectation
from conformance.results.profiles import profile_names
from conformance.results.rows import Row
from conformance.selection import Selection

PROFILES = profile_names("case")
"""Profiles of the runs that this module is parametrized with."""


def assert_expected(row: Row, expectation: Expectation, command: str) -> None:
    """Pass a run that conforms, xfail one that deviates exactly as the ledger says, skip one without its engine. The command
    reproduces it."""
    if row.verdict == "unavailable":
        pytest.skip(row.detail)
    if not expectation.expected:
        pytest.fail(f"{row.id}: {expectation.message or row.detail}. Reproduce: {command}", pytrace=False)
    if expectation.entries:
        # pytest.xfail() would have pytest render a traceback, which takes longer than everything else that it does for a run
        raise pytest.xfail.Exception(f"{expectation.known}: {expectation.entries[0].finding.title}", pytrace=False)


def test_run(verdict: tuple[Row, Expectation, str]) -> None:
    """A run conforms, or deviates exactly as the ledger says."""
    assert_expected(*verdict)


def test_config_is_torchs(config_of: Backend) -> None:
    """The config of a registered backend equals the one that torch ships, entry by entry."""
    shipped = getattr(torch_configs, f"get_{config_of.name}_backend_config", None)
    if shipped is None:
        pytest.skip(f"torch ships no config of {config_of.name}")
    differences = drift(config_of.factory(), shipped())
    if differences:
        pytest.fail(
            f"configs/ and torch's own {config_of.name} config differ:\n" + "\n".join(differences), pytrace=False
        )


def test_ledger_entry(ledger_entry: Entry, selection: Selection) -> None:
    """Each condition of an entry holds for a run, and it adds something to the others, unless it is for another host."""
    if problem := selection.useless.get(ledger_entry.name):
        pytest.fail(f"{ledger_entry.name} ({ledger_entry.source}) {problem}", pytrace=False)
