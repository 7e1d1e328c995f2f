"""Predictions of a network on engines, of this platform or another: nothing is lowered, and no quantized kernel runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.ao.quantization import QConfigMapping, get_default_qconfig_mapping
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig

from conformance.audit.auditing import claims_for
from conformance.audit.conversion import LEAVE_IN_FLOAT, Unconvertible, unconvertible
from conformance.audit.network import Network, copied
from conformance.audit.refusals import Refusals
from conformance.audit.values import NodeRaises
from conformance.cases.claims import BackendClaims
from conformance.errors import brief
from conformance.models import fx
from conformance.models.correspondence import Matches
from conformance.results.audits import Arithmetic, Refusal
from conformance.results.known import Entry, Host
from conformance.results.ledger import explaining
from conformance.results.predictions import PredictedLayer, Prediction

from .annotated import Annotated, Annotation, Calibration
from .causes import Causes


IN_FLOAT = "observed as promised, but no lowering pattern matches it"


class Foreseen(Exception):
    """What the ledger says that lowering raises."""


@dataclass(frozen=True)
class Predicting:
    """How an engine of a host is predicted: the entries of the ledger, and the mapping and the claims, or None for the
    engine's default ones."""

    engine: str
    host: Host
    entries: Sequence[Entry]
    mapping: QConfigMapping | None = None
    claims: BackendClaims | None = None
    custom: PrepareCustomConfig | None = None
    data: bool = True

    def predict(self, subject: Network) -> Prediction:
        """What will become of a network."""
        claims = self.claims or claims_for(self.engine)
        mapping = self.mapping or get_default_qconfig_mapping(self.engine)
        made = Prediction(subject.name, self.engine, claims.name, self.host.platform, self.host.torch)
        causes = Causes(self.entries, self.engine, self.host)
        refusals = Refusals(subject.model, mapping, claims)
        try:
            with fx.quiet(), torch.no_grad():
                layers = _annotated(subject, claims, refusals, causes, self.custom, self.data)
        except Unconvertible as error:
            return replace(made, failure=str(error), advice=error.advice, refusals=self._explained(refusals.all))
        refused = self._explained(refusals.all)
        return replace(made, layers=tuple(_predicted(one, causes, refused) for one in layers), refusals=refused)

    def _explained(self, refusals: Sequence[Refusal]) -> tuple[Refusal, ...]:
        def cause(one: Refusal) -> str | None:
            features = {"operator": one.operator, "stage": one.stage, "error": one.error}
            entry = explaining(self.entries, self.host, self.engine, one.check, features)
            return entry.id if entry else one.cause

        return tuple(replace(one, cause=cause(one)) for one in refusals)


def _annotated(
    subject: Network,
    claims: BackendClaims,
    refusals: Refusals,
    causes: Causes,
    custom: PrepareCustomConfig | None,
    data: bool,
) -> list[Annotated]:
    """The layers of a network, of which those are left in float that cannot be prepared, or of which the ledger says that
    lowering raises. Raises Unconvertible."""
    while True:
        matches = Matches()
        try:
            prepared = fx.prepare_network(
                subject.model, refusals.mapping, subject.held_out, refusals.config, matches, custom
            )
        except Exception as error:
            if not matches.traced or not refusals.leaves_out(error, "prepare", matches, None):
                raise unconvertible(error, "prepare", subject.model) from error
            continue
        annotation = Annotation(prepared, matches, replace(claims, config=refusals.config))
        try:
            annotation.run(*copied(subject.held_out))
        except NodeRaises as error:
            if not refusals.leaves_out_near(error.node, "calibrate", error.error, prepared, matches):
                raise Unconvertible("calibrate", brief(error.error), LEAVE_IN_FLOAT) from error
            continue
        if data:
            for batch in subject.calibration:
                Calibration(prepared, annotation.grids).run(*copied(batch))
        for layer in annotation.layers:
            refusing = next(causes.refusing(layer.features), None) if layer.arithmetic is Arithmetic.INTEGER else None
            if refusing is not None:
                entry, stage = refusing
                if refusals.leaves_out_called(layer.nodes[0], Foreseen(entry.id), stage, matches, prepared):
                    break
        else:
            return annotation.layers


def _predicted(layer: Annotated, causes: Causes, refusals: Sequence[Refusal]) -> PredictedLayer:
    foretold = causes.foretold(layer.features)
    arithmetic, reason = layer.arithmetic, layer.reason
    if arithmetic is Arithmetic.INTEGER and (instead := causes.arithmetic(layer.features)):
        arithmetic = instead
        reason = IN_FLOAT if instead is Arithmetic.FLOAT else ""
    if arithmetic is Arithmetic.FLOAT:
        kind = layer.features["operator"]
        if refusal := next((one for one in refusals if one.operator in kind), None):
            reason = f"left out because {refusal.stage} raises {refusal.cause or refusal.error}"
    return PredictedLayer(
        layer.name, layer.pattern, layer.claim.id if layer.claim else None, arithmetic, reason, layer.features, foretold
    )
