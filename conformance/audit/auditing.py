"""Audits of a network on engines."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, get_default_qconfig_mapping
from torch.ao.quantization.backend_config import BackendConfig
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig

from conformance.cases.claims import BackendClaims, backend, claims_of
from conformance.cases.recipes import dtype_name
from conformance.configs.engines import ENGINE_TABLE, ENGINES, QUANTIZER_ENGINES, backend_of
from conformance.engines.availability import probe
from conformance.engines.registry import engine as engine_named
from conformance.errors import UsageError, brief
from conformance.host.cpu import cpu, isa
from conformance.host.environment import installed
from conformance.host.threads import thread_count
from conformance.models import fx
from conformance.paths import KNOWN
from conformance.results.audits import USABLE_DB, Audit, Layer, Reduction
from conformance.results.known import Host
from conformance.results.ledger_file import load

from .agreement import apart, decibels, joined
from .causes import explained
from .conversion import LEAVE_IN_FLOAT, Converted, Unconvertible, convert
from .costs import size_ratio, time_ratio
from .execution import Execution, Step
from .in_place import in_place
from .isolated import Stage, Way, isolated
from .layers import Layers
from .network import Network, copied, extremes, network, tensors_of
from .parts import Cutter
from .quantizers import quantization
from .reduction import Blamed, reductions
from .script import script
from .stability import skipped, stability, tied_db
from .values import NodeRaises, inner_conversions, shares

DEFAULT_ENGINE = "x86"
"""The engine of audits through FX."""


def claims_for(engine: str) -> BackendClaims:
    """The claims of the registered backend that an engine runs. Raises UsageError for an engine that is unknown or not
    torch's own."""
    engine_named(engine)
    if engine in NATIVE_ENGINES:
        return backend(backend_of(engine))
    names = [name for name, engines in QUANTIZER_ENGINES.items() if engine in engines]
    through = f"add --quantizer {names[0]}" if names else "add --quantizer"
    raise UsageError(
        f"engine {engine!r} runs what a quantizer of PT2E converts: {through}, or audit one of {', '.join(NATIVE_ENGINES)}"
    )


def claims_in(config: BackendConfig | None, engine: str) -> BackendClaims | None:
    """The claims of somebody's own config that an engine runs, None without one."""
    if config is None:
        return None
    name = config.name or "backend_config"
    return BackendClaims(name, config, (engine,), claims_of(name, config), "")


NATIVE_ENGINES = tuple(name for names in ENGINES.values() for name in names if ENGINE_TABLE[name].native)


@dataclass(frozen=True)
class Settings:
    """How a network is audited: the mapping and the config, or None for the engine's default ones; what `prepare_fx` is told
    about modules of the network; whether it is repeated and blamed layers are reduced; and the least SQNR in dB of an output
    that is usable."""

    mapping: QConfigMapping | None = None
    claims: BackendClaims | None = None
    custom: PrepareCustomConfig | None = None
    stable: bool = True
    reduce: bool = True
    floor_db: float = USABLE_DB


def audit(
    model: nn.Module,
    inputs: Sequence[Any],
    engine: str | None = None,
    *,
    quantizer: object = None,
    quantize: object = None,
    qat: bool = False,
    mapping: QConfigMapping | None = None,
    custom_config: PrepareCustomConfig | None = None,
    backend_config: BackendConfig | None = None,
    name: str = "",
    ledger: Path = KNOWN,
    reduce: bool = True,
    floor_db: float = USABLE_DB,
) -> Audit:
    """Quantize a float model for an engine, and hold every layer to the float model and to its reference.

    Args:
        model: a float model in eval mode that FX can trace, or torch.export with a quantizer. It is not changed.
        inputs: at least two batches, each a tensor, a tuple of arguments or a dict of keyword arguments; the last is held
            out, the others calibrate.
        engine: one of torch's engines, `x86` (default), `fbgemm`, `onednn`, `qnnpack`; with a quantizer what runs the
            converted network, by default the first engine of the quantizer.
        quantizer: a quantizer of PT2E, or the name of a registered one, such as `xnnpack`; None for FX.
        quantize: a config of torchao's `quantize_`, which then quantizes the network in place, or a function that does.
        qat: whether a quantizer prepares the network for training.
        mapping: the qconfig mapping; torch's default for the engine if None.
        custom_config: what `prepare_fx` is told about modules of the network, such as those that FX shall not trace.
        backend_config: the config whose claims are looked up; that of the engine's backend if None.
        name: the name of the network in the result; the class of the model if empty.
        ledger: the folder of known deviations that explain faults.
        reduce: whether blamed layers are reduced to reproduction scripts.
        floor_db: the least SQNR in dB against the float model of an output that is usable.

    The audit runs in a forked child with one thread, so a crash of a kernel does not end this process.

    Raises:
        UsageError: if the model or the inputs cannot be audited, or the engine is unknown or unavailable here.
    """
    if quantize is not None:
        if quantizer or qat or mapping or custom_config or backend_config:
            raise UsageError(
                "quantize is a way of its own: give no quantizer, qat, mapping, custom_config or backend_config"
            )
        way: Way = in_place(quantize, engine, backend("torchao"), floor_db)
    elif quantizer:
        of_fx = {"mapping": mapping, "custom_config": custom_config, "backend_config": backend_config}
        if given := [name for name, one in of_fx.items() if one is not None]:
            raise UsageError(f"{given[0]} is FX's: configure the quantizer in its place")
        way = quantization(quantizer, engine, qat=qat, reduce=reduce, floor_db=floor_db)
    elif qat:
        raise UsageError("qat is for quantizers of PT2E: name one, such as quantizer='xnnpack'")
    else:
        engine = engine or DEFAULT_ENGINE
        claims = claims_in(backend_config, engine)
        way = Fx(engine, Settings(mapping, claims, custom_config, reduce=reduce, floor_db=floor_db))
    with thread_count(1):  # a child has no threads of a pool
        audited = way.audit(network(name or type(model).__name__, model, inputs), lambda _: None)
    return explained(audited, load(ledger), host())


def host(isa_limit: str | None = None) -> Host:
    """This host as the conditions of the ledger see it. `isa_limit` is the instruction set that `--isa` names, or None."""
    return Host(torch.__version__, platform.machine(), isa(isa_limit), cpu()[1], installed())


@dataclass(frozen=True)
class Fx:
    """FX with an engine of torch. Raises UsageError for an engine that is unknown or unavailable here."""

    engine: str
    settings: Settings = Settings()

    def __post_init__(self) -> None:
        claims_for(self.engine)
        if reason := probe(self.engine):
            raise UsageError(f"engine {self.engine} is unavailable here: {reason}")

    @property
    def backend(self) -> str:
        return (self.settings.claims or claims_for(self.engine)).name

    def audit(self, subject: Network, progress: Stage = lambda _: None) -> Audit:
        """Audit a network. `progress` is called with a line for each stage, in a child process."""

        def work(crashed: Mapping[str, str], place: Path) -> _Work:
            return _Work(subject, self.settings, crashed, place, progress)

        return isolated(subject.name, self.engine, self.backend, work)


@dataclass(frozen=True)
class _Work:
    """The audit of a network on the engine of a job, as a child does it. `place` is the file that holds the node it is in."""

    subject: Network
    settings: Settings
    crashed: Mapping[str, str]
    place: Path
    progress: Stage

    def __call__(self, engine: str) -> Audit:
        torch.set_num_threads(1)
        with engine_named(engine).scope(), fx.quiet():
            found = self._converted(engine)
            return replace(found, remarks=(*extremes(self.subject), *found.remarks))

    def _converted(self, engine: str) -> Audit:
        claims = self.settings.claims or claims_for(engine)
        mapping = self.settings.mapping or get_default_qconfig_mapping(engine)

        def stage(name: str) -> None:
            self.progress(f"{engine}: {name}")

        try:
            converted = convert(self.subject, claims, mapping, stage, self.settings.custom)
            return self._audited(engine, converted, stage)
        except Unconvertible as error:
            return Audit(
                self.subject.name, engine, claims.name, failure=str(error), stage=error.stage, advice=error.advice
            )

    def _audited(self, engine: str, converted: Converted, stage: Stage) -> Audit:
        subject = self.subject
        stage(f"execute {len(converted.lowered.graph.nodes)} nodes")
        execution = Execution(converted, self.crashed, lambda node: self.place.write_text(node.name))
        try:
            got = execution.audit(subject.held_out)
        except NodeRaises as error:
            return Audit(
                subject.name, engine, converted.claims.name, refusals=converted.refusals, stage="execute",
                failure=f"execution raises {brief(error.error)} in {error.node.name}", advice=LEAVE_IN_FLOAT,
            )  # fmt: skip
        whole = not any(step.replaced for step in execution.steps)
        nested: Mapping[str, tuple[str, ...]] = {}
        latency: Mapping[str, float] = {}
        time: float | None = None
        checks = skipped("a layer raises or crashes")
        if whole:
            stage("measure")
            self.place.write_text("")
            latency = shares(converted.lowered, subject.held_out)
            nested = inner_conversions(converted.lowered, subject.held_out)
            time = time_ratio(lambda inputs: converted.lowered(*inputs), subject.model, subject.held_out)
            if self.settings.stable:
                stage("repeat")
                checks = stability(converted)
        layers = Layers(converted, execution.steps, nested, latency)
        described = [layers.layer(step) for step in execution.steps]
        steps = zip(described, execution.steps, strict=True)
        blamed = [Blamed(layer, _in_traced(step, converted)) for layer, step in steps if layer.blamed]
        reduced: tuple[Reduction, ...] = ()
        if self.settings.reduce and blamed:
            stage(f"reduce {len(blamed)} blamed layers")
            cutter = Cutter(converted.traced, converted.matches.members, converted.in_float.values)
            reduced = reductions(cutter, partial(script, engine), f"{subject.name} on {engine}", blamed)
        with torch.no_grad():
            float_output = subject.model(*copied(subject.held_out))
        exact = joined(float_output)
        size, unsaved = size_ratio(engine_named(engine), converted.lowered, subject.model)
        failure, advice = _without_claims(described, converted, engine)
        whole_network = Audit(
            subject.name, engine, converted.claims.name, tuple(described), converted.refusals, checks, reduced,
            engine_db=decibels(joined(got), exact), reference_db=decibels(joined(converted.expected), exact),
            agreement_db=decibels(joined(got), joined(converted.expected)), failure=failure, advice=advice,
            outputs_db=tuple(apart(got, float_output)),
            time_ratio=time, size_ratio=size,
            floor_db=self.settings.floor_db, remarks=(*_uncompared(got, float_output), *unsaved),
        )  # fmt: skip
        return (
            replace(whole_network, tied_db=tied_db(converted.reference, subject.held_out, exact))
            if whole_network.loses
            else whole_network
        )


def _in_traced(step: Step, converted: Converted) -> tuple[str, ...]:
    """The names of a layer's nodes in the float network; for a conversion, of the layers that it is made for."""
    known = {node.name for node in converted.traced.graph.nodes if node.op != "placeholder"}
    own = tuple(node.name for node in step.body if node.name in known)
    return own or tuple(user.name for user in step.node.users if user.name in known)


def _uncompared(got: Any, expected: Any) -> Iterator[str]:
    """Yield a sentence for each output that is NaN or infinite where the float network's is not, and for each of integers or
    booleans, beside others in float, that is not the float network's."""
    pairs = [*zip(tensors_of(got), tensors_of(expected), strict=False)]
    in_float = any(y.is_floating_point() for _, y in pairs)
    for number, (x, y) in enumerate(pairs, 1):
        if x.shape != y.shape or x.is_quantized:
            continue
        if lost := int((y.isfinite() & ~x.isfinite()).sum()):
            yield f"output {number} is NaN or infinite in {lost} of {y.numel()} elements where the float network's is not"
        elif in_float and not (y.is_floating_point() or y.is_complex()) and (off := int((x != y).sum())):
            yield f"output {number} has other {dtype_name(y.dtype)} values than float's in {off} of {y.numel()} elements"


def _without_claims(layers: Sequence[Layer], converted: Converted, engine: str) -> tuple[str, str]:
    """What to say of a network that the config claims nothing of, and what to do; nothing for any other."""
    operators = dict.fromkeys(layer.pattern for layer in layers if layer.arithmetic.computes)
    if not operators or converted.refusals or any(layer.claim for layer in layers):
        return "", ""
    config, named = converted.claims.name, ", ".join(operators)
    failure = f"no claim of the {config} config covers any operator with the mapping's qconfigs: {named}"
    return (
        failure,
        f"nothing of it runs in integers on {engine}: give a --backend-config that has its operators, or a --mapping",
    )
