"""Predictions of a network on engines, of this platform or another: nothing is lowered, and no quantized kernel runs."""

import platform as this_platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, get_default_qconfig_mapping
from torch.ao.quantization.backend_config import BackendConfig
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig
from torch.fx import GraphModule

from conformance.audit.auditing import DEFAULT_ENGINE, claims_for, claims_in, host
from conformance.audit.conversion import LEAVE_IN_FLOAT, Unconvertible, unconvertible
from conformance.audit.layers import NOT_LOWERED
from conformance.audit.network import Network, copied, network
from conformance.audit.refusals import Refusals
from conformance.audit.values import NodeRaises
from conformance.cases.claims import BackendClaims
from conformance.configs.engines import ENGINE_TABLE
from conformance.errors import UsageError, brief
from conformance.models import fx
from conformance.models.correspondence import Matches
from conformance.paths import KNOWN
from conformance.results.audits import Arithmetic, Refusal
from conformance.results.known import Entry, Host
from conformance.results.ledger import explaining
from conformance.results.ledger_file import load
from conformance.results.predictions import PredictedLayer, Prediction

from .annotated import Annotated, Annotation, Calibration
from .causes import Causes
from .platforms import host_of


class Foreseen(Exception):
    """What the ledger says that lowering raises."""


@dataclass(frozen=True)
class Predicting:
    """How an engine of a host is predicted: the entries of the ledger; the mapping and the claims, or None for the engine's
    default ones; what `prepare_fx` is told about modules; and whether the inputs are `data`, whose ranges are known, or
    have the right shapes alone. Raises UsageError for an engine that is unknown, or that the host cannot have."""

    engine: str
    host: Host
    entries: Sequence[Entry]
    mapping: QConfigMapping | None = None
    claims: BackendClaims | None = None
    custom: PrepareCustomConfig | None = None
    data: bool = True

    def __post_init__(self) -> None:
        claims_for(self.engine)
        if self.host.arch not in (ENGINE_TABLE[self.engine].architectures or (self.host.arch,)):
            raise UsageError(f"engine {self.engine}: torch has none of that name on {self.host.arch}")

    def predict(self, subject: Network, shared: "Shared | None" = None) -> Prediction:
        """What will become of a network. Engines with one config and one mapping may share what was found out of it."""
        claims = self.claims or claims_for(self.engine)
        mapping = self.mapping or get_default_qconfig_mapping(self.engine)
        made = Prediction(subject.name, self.engine, claims.name, self.host.platform, str(self.host.torch))
        causes = Causes(self.entries, self.engine, self.host)
        refusals = Refusals(subject.model, mapping, claims)
        try:
            with fx.quiet(), torch.no_grad():
                annotated = _Annotating(subject, claims, refusals, causes, self.custom, self.data)
                layers = annotated.layers({} if shared is None else shared, f"{claims.name} {mapping}")
        except Unconvertible as error:
            return replace(made, failure=str(error), advice=error.advice, refusals=self._explained(refusals.all))
        refused = self._explained(refusals.all)
        return replace(made, layers=tuple(_predicted(one, causes, refused) for one in layers), refusals=refused)

    def _explained(self, refusals: Sequence[Refusal]) -> tuple[Refusal, ...]:
        def cause(one: Refusal) -> str | None:
            if one.exception == Foreseen.__name__:
                return one.message
            features = {"operator": one.operator, "stage": one.stage, "error": one.error}
            entry = explaining(self.entries, self.host, self.engine, one.check, features)
            return entry.id if entry else one.cause

        return tuple(replace(one, cause=cause(one)) for one in refusals)


def predict(
    model: nn.Module,
    inputs: Sequence[Any],
    engine: str | None = None,
    *,
    platform: str | None = None,
    isa: str | None = None,
    mapping: QConfigMapping | None = None,
    custom_config: PrepareCustomConfig | None = None,
    backend_config: BackendConfig | None = None,
    name: str = "",
    ledger: Path = KNOWN,
) -> Prediction:
    """Say from the ledger alone what will become of a float model on an engine.

    The model is traced, annotated as its mapping and config say, and executed in float. Nothing is lowered, so the engine
    and the platform need not be those of this machine.

    Args:
        model: a float model in eval mode that FX can trace. It is not changed.
        inputs: at least two batches, each a tensor, a tuple of arguments or a dict of keyword arguments; ranges are those of
            all but the last.
        engine: one of torch's engines, `x86` (default), `fbgemm`, `onednn`, `qnnpack`.
        platform: an architecture that the ledger knows, such as `aarch64`; this machine if None.
        isa: an instruction set of it, such as `avx2`.
        mapping: the qconfig mapping; torch's default for the engine if None.
        custom_config: what `prepare_fx` is told about modules of the network.
        backend_config: the config whose claims are looked up; that of the engine's backend if None.
        name: the name of the network in the result; the class of the model if empty.
        ledger: the folder of known deviations.

    Raises:
        UsageError: if the model or the inputs cannot be used, the engine is unknown, or the ledger does not know the
            platform.
    """
    entries, engine = load(ledger), engine or DEFAULT_ENGINE
    claims = claims_in(backend_config, engine)
    way = Predicting(engine, host_named(entries, platform, isa), entries, mapping, claims, custom_config)
    return way.predict(network(name or type(model).__name__, model, inputs))


def host_named(entries: Sequence[Entry], platform: str | None, isa: str | None) -> Host:
    """This machine, or the platform that is named. Raises UsageError for one that the ledger does not know."""
    if platform is None and isa is None:
        return host()
    return host_of(entries, torch.__version__, platform or this_platform.machine(), isa)


Shared = dict[str, list[Annotated]]
"""The layers of a network of which nothing is left out, by config and mapping."""


@dataclass(frozen=True)
class _Annotating:
    """A network, and what its layers are annotated by."""

    subject: Network
    claims: BackendClaims
    refusals: Refusals
    causes: Causes
    custom: PrepareCustomConfig | None
    data: bool

    def layers(self, shared: Shared, key: str) -> list[Annotated]:
        """The layers, of which those are left in float that cannot be prepared, or of which the ledger says that lowering
        raises. Raises Unconvertible."""
        if key in shared and not any(map(self._refusing, shared[key])):
            return shared[key]
        while True:
            matches = Matches()
            try:
                prepared = fx.prepare_network(
                    self.subject.model,
                    self.refusals.mapping,
                    self.subject.held_out,
                    self.refusals.config,
                    matches,
                    self.custom,
                )
            except Exception as error:
                if not matches.traced or not self.refusals.leaves_out(error, "prepare", matches, None):
                    raise unconvertible(error, "prepare", self.subject.model) from error
                continue
            annotation = self._executed(prepared, matches)
            if annotation is not None and not self._leaves_out(annotation, prepared, matches):
                if not self.refusals.all:
                    shared[key] = annotation.layers
                return annotation.layers

    def _executed(self, prepared: GraphModule, matches: Matches) -> Annotation | None:
        """The annotation of a network, None if a layer that raises was left out."""
        annotation = Annotation(prepared, matches, replace(self.claims, config=self.refusals.config), data=self.data)
        try:
            annotation.run(*copied(self.subject.held_out))
        except NodeRaises as error:
            if not self.refusals.leaves_out_near(error.node, "calibrate", error.error, prepared, matches):
                raise Unconvertible("calibrate", brief(error.error), LEAVE_IN_FLOAT) from error
            return None
        for batch in self.subject.calibration if self.data else ():
            Calibration(prepared, annotation.grids).run(*copied(batch))
        return annotation

    def _leaves_out(self, annotation: Annotation, prepared: GraphModule, matches: Matches) -> bool:
        """Leave out the first layer of which the ledger says that lowering raises, if there is one."""
        for layer in annotation.layers:
            if (refusing := self._refusing(layer)) is not None:
                cause, stage = refusing
                if self.refusals.leaves_out_called(layer.node, Foreseen(cause), stage, matches, prepared):
                    return True
        return False

    def _refusing(self, layer: Annotated) -> tuple[str, str] | None:
        return self.causes.refusing(layer.features) if layer.arithmetic is Arithmetic.INTEGER else None


def _predicted(layer: Annotated, causes: Causes, refusals: Sequence[Refusal]) -> PredictedLayer:
    foretold = causes.foretold(layer.features)
    arithmetic, reason = layer.arithmetic, layer.reason
    if arithmetic is Arithmetic.INTEGER and (instead := causes.arithmetic(layer.features)):
        arithmetic = instead
        reason = NOT_LOWERED if instead is Arithmetic.FLOAT else ""
    if arithmetic is Arithmetic.FLOAT:
        kind = layer.features["operator"]
        if refusal := next((one for one in refusals if one.operator in kind), None):
            reason = f"left out because {refusal.stage} raises {refusal.cause or refusal.error}"
    return PredictedLayer(
        layer.name, layer.pattern, layer.claim.id if layer.claim else None, arithmetic, reason, layer.features, foretold
    )
