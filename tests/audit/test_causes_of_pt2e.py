"""Causes in the ledger that explain layers of networks through PT2E, each shown by a minimal model, in the environments that
have the quantizer."""

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from conformance.audit import quantization
from conformance.audit.auditing import host
from conformance.audit.causes import explained
from conformance.audit.network import network
from conformance.cases.claims import backend
from conformance.models import pt2e
from conformance.results.ledger_file import load
from tests.audit.causes import CAUSES, Cause
from tests.saturation import SATURATIONS

OF_PT2E = [cause for cause in CAUSES if cause.quantizer]
PACKAGES = {"xnnpack": "executorch", "x86inductor": "torchao", "cortexm": "tosa_serializer"}


@pytest.mark.parametrize("cause", OF_PT2E, ids=[f"{number}-{cause.name}" for number, cause in enumerate(OF_PT2E)])
def test_a_minimal_model_shows_the_cause(cause: Cause) -> None:
    if find_spec(PACKAGES[cause.quantizer]) is None:
        pytest.skip(f"{PACKAGES[cause.quantizer]} is not installed")
    torch.manual_seed(0)
    subject = network(cause.id, nn.Sequential(cause.model()).eval(), cause.batches())
    audit_of = quantization(cause.quantizer, cause.engine, qat=cause.qat, reduce=False).audit
    found = explained(audit_of(subject), load(), host())
    causes = {fault.cause for layer in found.blamed for fault in layer.faults}
    causes |= {refusal.cause for refusal in found.refusals}
    causes |= {found.cause} if found.failure else set()
    assert causes - (SATURATIONS - {cause.id}) == {cause.id}, found.failure
    if found.failure and found.blamed:
        call = pt2e.spec_of(backend(cause.quantizer)).leaving
        annotated = [one.name for one in found.layers if one.blamed and one.features["annotated"] == "True"]
        advice = f"leave {', '.join(annotated)} in float: {call} of the quantizer for each name"
        assert found.advice == (advice if annotated else "")
