"""The quantizers that networks are audited with through PT2E: registered ones, and those of users, each with an engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from conformance.cases.claims import BackendClaims, backend
from conformance.configs.engines import ENGINE_TABLE, QUANTIZER_ENGINES
from conformance.configs.quantizer import QuantizerSpec
from conformance.configs.registry import QUANTIZERS
from conformance.engines.availability import probe
from conformance.engines.registry import engine as engine_named
from conformance.errors import UsageError
from conformance.host.callables import attribute_of, result_of
from conformance.models import fx, pt2e
from conformance.results.audits import USABLE_DB, Audit
from conformance.suggestions import unknown

from .conversion import Unconvertible
from .exported import export
from .isolated import Stage, isolated
from .network import Network, extremes
from .programs import Programs
from .reduction import Write
from .script import LOWERING, exported_script

CONVERTED = "converted"
"""The engine that runs what `convert_pt2e` returns as it is, for quantizers whose models nothing here lowers."""

FURTHER_ENGINES = {"x86inductor": ("x86-unfrozen", "x86-aot", "x86-aot-unfrozen")}
"""Engines that a quantizer's models are not run on by default, besides CONVERTED."""


@dataclass(frozen=True)
class Quantization:
    """PT2E with the quantizer that `make` returns, for an engine, in PTQ or QAT.

    `claims` are what a registered quantizer declares, None for another one; `spec` says how it is made, None for one of the
    user's own. `reduce` is whether blamed layers are reduced to scripts, `floor_db` the least SQNR in dB of an output that is
    usable.
    """

    name: str
    make: Callable[[], Any]
    engine: str
    claims: BackendClaims | None = None
    spec: QuantizerSpec | None = None
    qat: bool = False
    reduce: bool = True
    floor_db: float = USABLE_DB

    @property
    def write(self) -> Write | None:
        """What writes the scripts of blamed layers, if there is source of the quantizer and for the engine."""
        if not self.reduce or self.spec is None or self.engine not in LOWERING:
            return None
        return partial(exported_script, self.engine, self.spec, self.qat)

    @property
    def backend(self) -> str:
        return self.claims.name if self.claims else self.name

    def audit(self, subject: Network, progress: Stage = lambda _: None) -> Audit:
        """Audit a network through PT2E. `progress` is called with a line for each stage, in a child process."""

        def work(crashed: Mapping[str, str], place: Path) -> Callable[[str], Audit]:
            return _Work(subject, self, crashed, place, progress)

        engine_named(self.engine).warm_up()
        return isolated(subject.name, self.engine, self.backend, work)


def quantization(
    quantizer: object,
    engine: str | None = None,
    *,
    qat: bool = False,
    reduce: bool = True,
    floor_db: float = USABLE_DB,
) -> Quantization:
    """The quantization by a registered quantizer, configured as its users begin, or by an object of one's own.

    Args:
        quantizer: the name of a registered quantizer, the `module:attribute` of another one or of a callable that returns
            it, or the quantizer itself.
        engine: what runs the converted network; the first one of a registered quantizer, or the one for the class of the
            object, or the converted model as it is.
        qat: whether the network is prepared for training.
        reduce: whether blamed layers are reduced to reproduction scripts.
        floor_db: the least SQNR in dB against the float model of an output that is usable.

    Raises UsageError for a name that is unknown, for an object that is no quantizer, and for an engine that is unknown, does
    not run such models, or is unavailable here.
    """
    if isinstance(quantizer, str) and ":" not in quantizer:
        if quantizer not in QUANTIZERS:
            raise unknown("quantizer", quantizer, QUANTIZERS, ", or name your own as module:attribute")
        declared = backend(quantizer)
        spec = pt2e.spec_of(declared)
        if reason := pt2e.unavailable(spec):
            raise UsageError(f"quantizer {quantizer} is unavailable here: {reason}")
        own: tuple[str, ...] = QUANTIZER_ENGINES[quantizer]
        made = Quantization(quantizer, partial(pt2e.default_quantizer, spec, qat=qat), own[0], declared, spec)
        accepted = (*own, *FURTHER_ENGINES.get(quantizer, ()), CONVERTED)
    else:
        name, instance = (quantizer, _loaded(quantizer)) if isinstance(quantizer, str) else ("", quantizer)
        if missing := [one for one in ("annotate", "validate") if not callable(getattr(instance, one, None))]:
            raise UsageError(
                f"quantizer {name or type(instance).__name__!r} has no {' and no '.join(missing)}: give a Quantizer of PT2E, "
                "or what returns one"
            )
        registered = registered_as(instance)
        own = QUANTIZER_ENGINES[registered] if registered else (CONVERTED,)
        claims = backend(registered) if registered else None
        made = Quantization(name or type(instance).__name__, lambda: instance, own[0], claims)
        accepted = (*chain.from_iterable(QUANTIZER_ENGINES.values()), CONVERTED)
    if engine is not None and engine not in accepted:
        if engine not in ENGINE_TABLE:
            raise unknown("engine", engine, accepted)
        raise UsageError(
            f"engine {engine!r} does not run what quantizer {made.name} converts: give one of {', '.join(accepted)}"
        )
    made = replace(made, engine=engine or made.engine, qat=qat, reduce=reduce, floor_db=floor_db)
    if reason := probe(made.engine):
        raise UsageError(f"engine {made.engine} is unavailable here: {reason}")
    return made


def registered_as(instance: object) -> str | None:
    """The registered quantizer that an object is, or is derived from; None for another one."""
    theirs = {f"{base.__module__}.{base.__name__}" for base in type(instance).__mro__}
    for name in QUANTIZERS:
        spec = pt2e.spec_of(backend(name))
        maker = spec.source.partition("(")[0]
        if f"{spec.names.get(maker)}.{maker}" in theirs:
            return name
    return None


def _loaded(path: str) -> Any:
    named = attribute_of("--quantizer", path)
    return named if hasattr(named, "annotate") and not isinstance(named, type) else result_of("--quantizer", path)


@dataclass(frozen=True)
class _Work:
    """The audit of a network through PT2E, as a child does it. `place` is the file that holds the layer it is in."""

    subject: Network
    how: Quantization
    crashed: Mapping[str, str]
    place: Path
    progress: Stage

    def __call__(self, engine: str) -> Audit:
        torch.set_num_threads(1)
        implementation = engine_named(engine)
        blank = Audit(self.subject.name, engine, self.how.backend, floor_db=self.how.floor_db)

        def stage(name: str) -> None:
            self.progress(f"{engine}: {name}")

        with implementation.scope(), fx.quiet():
            try:
                exported = export(self.subject, self.how.make, stage, qat=self.how.qat)
            except Unconvertible as error:
                return replace(blank, failure=str(error), stage=error.stage, advice=error.advice)
            entered = self.place.write_text
            programs = Programs(exported, implementation, self.how.claims, self.crashed, entered, stage, self.how.write)
            found = programs.audit(blank)
        return replace(found, remarks=(*extremes(self.subject), *found.remarks))
