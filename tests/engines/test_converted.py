"""The engine of converted models, for quantizers of third parties, and the option that names one."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.cases.claims import third_parties, third_party
from conformance.cases.runs import runs
from conformance.checks.judge import Judge
from conformance.configs.engines import QUANTIZER_ENGINES
from conformance.errors import UsageError
from conformance.results.verdicts import Verdict
from conformance.results.where import Where
from conformance.selection import Selection

installed = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")
THEIRS = """
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig
from conformance.configs import dtypes
from conformance.configs.quantizer import Declaration, QuantizerConfig, QuantizerSpec
from conformance.configs.x86inductor import X86

def declared():
    config = QuantizerConfig("theirs", X86)
    declaration = Declaration(nn.Conv2d, "conv2d", per_channel=True)
    declaration.set_dtype_configs([dtypes.STATIC_QUINT8_WEIGHTED_TO_FLOAT])
    return config.set_backend_pattern_configs([declaration])

CONFIG = BackendConfig("no quantizer")
EMPTY = QuantizerConfig("empty", X86)
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "their_quantizer.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("conformance.configs.engines.QUANTIZER_ENGINES", before := dict(QUANTIZER_ENGINES))
    third_party.cache_clear()
    yield "their_quantizer:declared"
    third_party.cache_clear()
    sys.modules.pop("their_quantizer", None)
    for name in QUANTIZER_ENGINES.keys() - before.keys():
        del QUANTIZER_ENGINES[name]


def test_claims_of_a_quantizer_run_on_converted_models(theirs: str) -> None:
    (claims,) = third_parties([theirs], "--quantizer")
    assert (claims.name, claims.engines) == ("theirs", ("converted",))
    assert [claim.id for claim in claims.claims] == ["theirs/nn.Conv2d/static-quint8"]
    assert {one.flow for one in runs(claims)} == {"ptq", "qat"}


def test_a_condition_has_to_name_a_quantizer(theirs: str) -> None:
    third_party(theirs, "--quantizer")
    run_id = "theirs/nn.Conv2d/static-quint8/ptq/default/exact@converted"
    assert not Where.of({"pattern": "nn.Conv2d", "flow": "ptq"}).matches(run_id)
    assert Where.of({"backend": "theirs", "engine": "conv*", "pattern": "nn.Conv2d"}).matches(run_id)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("CONFIG", "is of type BackendConfig; it has to be a QuantizerConfig: see docs/pt2e.md"),
        ("EMPTY", "has no entries: there is nothing to run"),
        ("missing", "has no attribute"),
    ],
)
def test_anything_else_is_refused(theirs: str, attribute: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        third_party(f"their_quantizer:{attribute}", "--quantizer")


def test_the_option_excludes_the_others(theirs: str) -> None:
    assert [claims.name for claims in Selection(quantizers=[theirs]).claims] == ["theirs"]
    with pytest.raises(UsageError, match="--backend and --quantizer exclude each other"):
        _ = Selection(backends=["fbgemm"], quantizers=[theirs]).claims


@installed
def test_a_claim_of_theirs_is_judged(theirs: str) -> None:
    claims = third_party(theirs, "--quantizer")
    default = next(one for one in runs(claims) if one.variant is not None and one.variant.name == "default")
    row, unusable = Judge().row(default)
    assert (row.verdict, row.detail, unusable) == (Verdict.CONFORMS, "", "")
    assert row.kernels == ("reference",)
