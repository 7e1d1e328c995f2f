"""What the ledger lists for a run is known in networks with the run's model, and a form of it without that has no blame."""

import pytest
import torch

from conformance.results.ledger_file import load
from tests.known_networks import PAGE, Verdict, elsewhere, outcomes


@pytest.mark.parametrize(
    ("name", "engine"), [("qnnpack", "qnnpack"), ("fbgemm", "fbgemm"), ("fbgemm", "x86"), ("onednn", "onednn")]
)
def test_findings_of_runs_are_known_in_networks(name: str, engine: str) -> None:
    if engine not in torch.backends.quantized.supported_engines:
        pytest.skip(f"torch has no {engine} here")
    torch.set_num_threads(1)
    found = [*outcomes(name, [engine])]
    assert [(one.shown.finding, one.said) for one in found if not one.right] == []
    assert sum(one.alone is Verdict.NAMED for one in found) > 20
    assert sum(one.twin is Verdict.CLEAN for one in found) > 20


def test_the_page_has_every_finding_of_the_ledger() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert [name for name in elsewhere(load()) if name not in written] == []
