"""The counterpart of a claim: plain patterns and the quantizer's own declarations, without torchao."""

from collections import Counter

import pytest

from conformance.cases.claims import Claim, backend
from conformance.cases.variants import flows
from conformance.configs.engines import ENGINES, SUCCESSORS
from conformance.configs.names import pattern_name
from conformance.configs.quantizer import Declaration
from conformance.migration.counterparts import PLAIN, Kind, counterpart, plain


def claim(claim_id: str) -> Claim:
    return next(one for one in backend(claim_id.partition("/")[0]).claims if one.id == claim_id)


def test_every_backend_has_a_successor_that_is_registered() -> None:
    assert SUCCESSORS.keys() == ENGINES.keys()
    for quantizer, engine in SUCCESSORS.values():
        assert engine in backend(quantizer).engines


def test_every_fused_and_qat_module_of_the_configs_has_a_plain_pattern() -> None:
    modules = {
        one.tree
        for name in ENGINES
        for one in backend(name).claims
        if pattern_name(one.tree).startswith(("nni.", "nnqat.", "nniqat.")) and not isinstance(one.tree, tuple)
    }
    assert modules <= PLAIN.keys()
    assert len(modules) > 30


@pytest.mark.parametrize(
    ("claim_id", "pattern", "quantizer", "flow", "promised"),
    [
        ("fbgemm/nn.Conv2d/static-quint8", "nn.Conv2d", "x86inductor", "ptq", True),
        ("fbgemm/nni.ConvReLU2d/static-quint8", "nn.Conv2d+nn.ReLU", "x86inductor", "ptq", True),
        ("fbgemm/nniqat.ConvBnReLU2d/static-quint8", "nn.Conv2d+nn.BatchNorm2d+nn.ReLU", "x86inductor", "qat", True),
        ("fbgemm/nn.Conv2d+nn.BatchNorm2d/static-quint8", "nn.Conv2d+nn.BatchNorm2d", "x86inductor", "ptq", False),
        ("onednn/nni.ConvAdd2d/static-quint8", "operator.add(nn.Conv2d,*)", "x86inductor", "ptq", True),
        ("qnnpack/nn.Linear/dynamic-quint8", "nn.Linear", "xnnpack", "ptq", True),
        ("qnnpack/nn.Sigmoid/static-qint8", "nn.Sigmoid", "xnnpack", "ptq", False),
    ],
)
def test_a_claim_has_a_counterpart(claim_id: str, pattern: str, quantizer: str, flow: str, promised: bool) -> None:
    claims = backend(claim_id.partition("/")[0])
    found = counterpart(claims, claim(claim_id))
    assert found is not None
    assert (found.claim.pattern, found.claims.name, found.flow) == (pattern, quantizer, flow)
    assert found.promised is promised
    assert isinstance(found.claim.entry, Declaration)
    assert found.claims.claims == (found.claim,)


@pytest.mark.parametrize(
    "claim_id",
    ["fbgemm/nn.Embedding/weight-quint8", "qnnpack/nn.Linear/dynamic-float16", "onednn/nn.Embedding/weight-qint8"],
)
def test_weights_alone_and_float16_have_none(claim_id: str) -> None:
    assert Kind.of(claim(claim_id)) is None
    assert counterpart(backend(claim_id.partition("/")[0]), claim(claim_id)) is None


def test_all_claims_of_the_configs_are_followed_in_the_flow_that_they_begin_with() -> None:
    counts: Counter[bool] = Counter()
    for name in ENGINES:
        claims = backend(name)
        for one in claims.claims:
            found = counterpart(claims, one)
            counts[found is not None] += 1
            if found is not None:
                assert found.flow == flows(one, claims.entries)[0]
    assert counts.total() == 1045
    assert counts[False] == 62


def test_a_plain_pattern_stays_as_it_is() -> None:
    tree = claim("fbgemm/nn.Conv2d+nn.ReLU/static-quint8").tree
    assert plain(tree) is tree
