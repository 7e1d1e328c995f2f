"""Each cause is found by an audit of a minimal model that shows it, and explained by its entry of the ledger alone."""

import fnmatch

import pytest
import torch
from torch import nn

from conformance.audit import Fx
from conformance.audit.auditing import Settings, host
from conformance.audit.causes import explained
from conformance.audit.network import network
from conformance.results.ledger_file import load
from tests.audit.causes import CAUSES, Cause
from tests.audit.causes_in_place import IN_PLACE
from tests.saturation import SATURATIONS

HOST = host()


OF_FX = [cause for cause in CAUSES if not cause.quantizer]


@pytest.mark.parametrize("cause", OF_FX, ids=[f"{number}-{cause.name}" for number, cause in enumerate(OF_FX)])
def test_a_minimal_model_shows_the_cause(cause: Cause) -> None:
    if cause.engine not in torch.backends.quantized.supported_engines:
        pytest.skip(f"torch has no {cause.engine} here")
    if not fnmatch.fnmatchcase(HOST.arch, cause.arch) or not fnmatch.fnmatchcase(HOST.isa, cause.isa):
        pytest.skip(f"occurs on {cause.arch} {cause.isa}")
    torch.manual_seed(0)
    subject = network(cause.id, nn.Sequential(cause.model()).eval(), cause.batches())
    mapping = cause.mapping() if cause.mapping else None
    audited = Fx(cause.engine, Settings(mapping, stable=False, reduce=False)).audit(subject)
    found = explained(audited, load(), HOST)
    causes = {fault.cause for layer in found.blamed for fault in layer.faults}
    causes |= {refusal.cause for refusal in found.refusals}
    causes |= {found.cause} if found.failure else set()
    expected = {cause.id, *cause.beside}
    assert causes - (SATURATIONS - expected) == expected, found.failure


def test_every_cause_in_the_ledger_has_a_model() -> None:
    assert {entry.id for entry in load() if entry.layers} == {one.id for one in CAUSES} | {one.id for one in IN_PLACE}
