"""The counterpart of a claim of a backend config: its pattern as an exported graph has it, declared for a quantizer."""

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
from torch import nn
from torch.ao.quantization.backend_config import DTypeConfig
from torch.ao.quantization.utils import MatchAllNode

from conformance.cases.claims import BackendClaims, Claim, backend, claims_of
from conformance.cases.recipes import QUANTIZED
from conformance.cases.variants import flows
from conformance.configs import dtypes
from conformance.configs.engines import SUCCESSORS
from conformance.configs.quantizer import Declaration, QuantizerConfig


def _plain_modules() -> Iterator[tuple[type[nn.Module], Any]]:
    """Fused and QAT modules, with the pattern of plain operators that they are, in nested form."""
    for rank in (1, 2, 3):
        conv, norm = getattr(nn, f"Conv{rank}d"), getattr(nn, f"BatchNorm{rank}d")
        forms = {"ReLU": (nn.ReLU, conv), "Bn": (norm, conv), "BnReLU": (nn.ReLU, (norm, conv))}
        yield getattr(nnqat, f"Conv{rank}d"), conv
        for name, tree in forms.items():
            yield getattr(nni, f"Conv{name}{rank}d"), tree
            yield getattr(nniqat, f"Conv{name}{rank}d"), tree
    others: tuple[tuple[type[nn.Module], Any], ...] = (
        (nnqat.Linear, nn.Linear),
        (nni.LinearReLU, (nn.ReLU, nn.Linear)),
        (nniqat.LinearReLU, (nn.ReLU, nn.Linear)),
        (nni.LinearBn1d, (nn.BatchNorm1d, nn.Linear)),
        (nniqat.LinearBn1d, (nn.BatchNorm1d, nn.Linear)),
        (nni.LinearLeakyReLU, (nn.LeakyReLU, nn.Linear)),
        (nni.LinearTanh, (nn.Tanh, nn.Linear)),
        (nni.BNReLU2d, (nn.ReLU, nn.BatchNorm2d)),
        (nni.BNReLU3d, (nn.ReLU, nn.BatchNorm3d)),
        (nni.ConvAdd2d, (operator.add, nn.Conv2d, MatchAllNode)),
        (nni.ConvAddReLU2d, (nn.ReLU, (operator.add, nn.Conv2d, MatchAllNode))),
        (nnqat.Embedding, nn.Embedding),
        (nnqat.EmbeddingBag, nn.EmbeddingBag),
    )
    yield from others


PLAIN: dict[Any, Any] = dict(_plain_modules())
"""PT2E has no fused modules and no QAT modules: it exports a model of plain ones, and recognizes their operators."""


def plain(tree: Any) -> Any:
    """The nested pattern of a claim with plain operators in place of fused and QAT modules."""
    return PLAIN.get(tree, tree) if isinstance(tree, type) else tree


@dataclass(frozen=True)
class Kind:
    """How activations and weights are quantized, whatever their dtype: one quantizer has one form of each."""

    dynamic: bool
    weighted: bool

    @classmethod
    def of(cls, claim: Claim) -> "Kind | None":
        """The kind of a claim; None for weights alone and for float16, which no quantizer here has."""
        if claim.dtypes.input_dtype not in QUANTIZED:
            return None
        return cls(bool(claim.dtypes.is_dynamic), claim.dtypes.weight_dtype in QUANTIZED)


FORMS: dict[str, dict[Kind, DTypeConfig]] = {
    "xnnpack": {
        Kind(dynamic=False, weighted=True): dtypes.STATIC_QINT8_SYMMETRIC_WEIGHTED,
        Kind(dynamic=False, weighted=False): dtypes.STATIC_QINT8_SYMMETRIC,
        Kind(dynamic=True, weighted=True): dtypes.DYNAMIC_QINT8_SYMMETRIC,
    },
    "x86inductor": {
        Kind(dynamic=False, weighted=True): dtypes.STATIC_QUINT8_WEIGHTED_TO_FLOAT,
        Kind(dynamic=False, weighted=False): dtypes.STATIC_QUINT8_TO_FLOAT,
        Kind(dynamic=True, weighted=True): dtypes.DYNAMIC_QUINT8_BOUNDED,
    },
}
"""The dtypes of each quantizer for each kind of quantization."""


@dataclass(frozen=True)
class Counterpart:
    """What stands for a claim with a quantizer. `promised` says whether the quantizer declares the pattern for the flow."""

    claims: BackendClaims
    claim: Claim
    flow: str
    engine: str
    promised: bool


def counterpart(claims: BackendClaims, claim: Claim) -> Counterpart | None:
    """The counterpart of a claim of a registered backend config; None if the quantizer has no such kind of quantization."""
    quantizer, engine = SUCCESSORS[claims.name]
    kind = Kind.of(claim)
    if kind is None or kind not in FORMS[quantizer]:
        return None
    flow = flows(claim, claims.entries)[0]
    own = _declared(quantizer, plain(claim.tree), kind.dynamic, flow)
    found = own or _undeclared(quantizer, plain(claim.tree), kind, flow, claim)
    return Counterpart(found, found.claims[0], flow, engine, own is not None)


@cache
def _declared(quantizer: str, tree: Any, dynamic: bool, flow: str) -> BackendClaims | None:
    """The quantizer with its own declaration of a pattern alone, None if it has none for this flow."""
    claims = backend(quantizer)
    for claim in claims.claims:
        assert isinstance(claim.entry, Declaration)
        if claim.tree == tree and bool(claim.dtypes.is_dynamic) is dynamic and flow in claim.entry.flows:
            return BackendClaims(claims.name, claims.config, claims.engines, (claim,), claims.source)
    return None


def _undeclared(quantizer: str, tree: Any, kind: Kind, flow: str, claim: Claim) -> BackendClaims:
    """The quantizer with a declaration of its own kind for a pattern that it does not declare."""
    claims = backend(quantizer)
    assert isinstance(claims.config, QuantizerConfig)
    declaration = Declaration(None, "", (flow,), per_channel=_per_channel(claims))
    declaration._set_pattern_complex_format(tree)
    declaration.set_observation_type(claim.entry.observation_type)
    declaration.set_dtype_configs([FORMS[quantizer][kind]])
    config = QuantizerConfig(quantizer, claims.config.quantizer)
    config.set_backend_pattern_configs([declaration])
    return BackendClaims(quantizer, config, claims.engines, claims_of(quantizer, config), claims.source)


def _per_channel(claims: BackendClaims) -> bool:
    """Whether a quantizer gives weights a scale for each output channel, whatever the pattern."""
    return all(isinstance(claim.entry, Declaration) and claim.entry.per_channel for claim in claims.claims)
