"""Audits: a network, quantized and lowered for an engine, held layer by layer to its reference model.

An audit is what `python -m conformance audit` measures and what its text, HTML and JSON are rendered from.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

from .codec import By, Count, Finite, Seconds, decode, encode
from .findings import Finding
from .findings import from_json as finding_from_json
from .findings.layers import LayerRaises
from .findings.stages import Crashes

AnyFinding = Annotated[Finding, By("a finding", finding_from_json)]

SCHEMA = 4
"""Version of an audit's JSON."""

FEW_CODES = 32
"""An output that uses fewer of its codes, although it has as many elements, wastes at least three of eight bits."""

USABLE_DB = 10.0
"""The least SQNR against the float model of an output that is usable: below, noise has more than a tenth of its power."""

CLIPPED = 0.01
"""The share of clipped elements from which it is pointed out. Observers of histograms clip a few of them on purpose."""

LEAST_DB = -200.0
"""The SQNR of values with nothing of the expected ones: they are infinite or NaN where those are not, or those are zero."""

LOST_DB = 3.0
"""How much worse than its reference an engine's output may be, measured against the float model, before that is a finding."""


class Arithmetic(StrEnum):
    """How the kernels of a layer compute.

    `NAME_ONLY` is a quantized kernel that dequantizes its operands and computes in float; `CONVERSION` layers quantize or
    dequantize, `VIEW` layers move or reshape without computing anything.
    """

    INTEGER = "integer"
    NAME_ONLY = "integer in name only"
    FLOAT = "float"
    CONVERSION = "conversion"
    VIEW = "view"

    @property
    def computes(self) -> bool:
        return self in (Arithmetic.INTEGER, Arithmetic.NAME_ONLY, Arithmetic.FLOAT)


UNWANTED = (Arithmetic.FLOAT, Arithmetic.NAME_ONLY)
"""How a layer that is promised in integers should not compute."""


class State(StrEnum):
    """What becomes of a network: usable if its output is near enough to the float model's."""

    USABLE = "usable"
    UNUSABLE = "not usable"
    BROKEN = "cannot run"
    UNCONVERTED = "cannot be converted"


@dataclass(frozen=True)
class Qparams:
    """Dtype, scale and zero point of a quantized tensor; those of the first channel, and how many, where it is per
    channel."""

    dtype: str
    scale: float
    zero_point: float
    channels: Count = 1

    @property
    def text(self) -> str:
        per_channel = f" ×{self.channels}" if self.channels > 1 else ""
        return f"{self.dtype} {self.scale:.4g}/{self.zero_point:g}{per_channel}"


@dataclass(frozen=True)
class Agreement:
    """The elements of a layer's output beside those of the reference for the same inputs.

    A `tied` element is one code off where the exact position is within a 64th of a step of the middle between both codes;
    `stepped` elements are one code off elsewhere, `off` ones by more. The rest of `total` are equal. `steps_max` is the
    greatest distance in codes. Elements of a float output are equal or off.
    """

    total: Count = 0
    tied: Count = 0
    stepped: Count = 0
    off: Count = 0
    steps_max: Count = 0

    @property
    def equal(self) -> int:
        return self.total - self.tied - self.stepped - self.off

    @property
    def wrong(self) -> int:
        """Elements that are off by more than a tie."""
        return self.stepped + self.off


@dataclass(frozen=True)
class Form:
    """How a network calls an operator: the constructor of its module, empty for a function, and the call; for each operand
    its shape, such as `2x3x8x8`, and its memory format, nothing if they are unknown; and the names and shapes of the
    parameters of a function."""

    init: str
    call: str
    operands: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Fault:
    """A finding about a layer on an engine, with the id of the ledger entry that explains it, None if it is new."""

    finding: AnyFinding
    cause: str | None = None

    @property
    def check(self) -> str:
        """The check that fails."""
        return self.finding.check

    @property
    def text(self) -> str:
        return self.finding.text


@dataclass(frozen=True)
class Layer:
    """One layer of a lowered network: a node of its graph.

    `name` is the path of its module or, of a function, the path of the module that calls it and the name of its node.
    `pattern` is what it was matched as, with the modules fused into it; `claim` the id of the claim that covers it, None if
    there is none. `reason` says why a layer that computes stays in float. SQNRs are None where equal or not comparable:
    `float_db` against the float network given the same inputs, what the layer costs, quantization included; `local_db`
    against the reference given the same inputs; `cumulative_db` against the float network's own value here; `overwrites_db`
    that of an operand that its kernel overwrote, which is used again.
    `clipped` is the share of elements beyond the range of the output's dtype, `codes_used` how many codes occur of
    `codes`, `latency` its share of the network's time. `features` are what causes in the ledger refer to, `form` is how the
    network calls a layer that has faults, or that is promised in integers and is not; `cause` the ledger entry that lists the
    latter.
    """

    name: str
    pattern: str
    claim: str | None
    arithmetic: Arithmetic
    reason: str = ""
    kernels: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    inputs: tuple[str, ...] = ()
    output: Qparams | None = None
    reference: Qparams | None = None
    weight: Qparams | None = None
    agreement: Agreement | None = None
    local_db: Finite | None = None
    cumulative_db: Finite | None = None
    float_db: Finite | None = None
    overwrites_db: Finite | None = None
    clipped: Finite = 0.0
    codes_used: Count = 0
    codes: Count = 0
    latency: Finite = 0.0
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    features: Mapping[str, str] = field(default_factory=dict)
    form: Form | None = None
    cause: str | None = None

    @property
    def unkept(self) -> bool:
        """Whether a claim promises the layer in integers, and it computes in float."""
        return self.claim is not None and self.arithmetic in UNWANTED

    @property
    def blamed(self) -> bool:
        return bool(self.faults)

    @property
    def damage(self) -> tuple[int, float]:
        """Key that sorts blamed layers, most damage first: what crashes, what raises, then by the noise that the layer
        adds to its value in float, or to the reference's."""
        checks = {fault.check for fault in self.faults}
        ends = 0 if "crashes" in checks else 1 if "lowered" in checks else 2
        noise = [
            value
            for value in (self.local_db if self.float_db is None else self.float_db, self.overwrites_db)
            if value is not None
        ]
        return ends, min(noise, default=float("inf"))


@dataclass(frozen=True)
class Refusal:
    """A kind of modules or functions that could not be prepared or lowered. `instead` is what was done so that the rest could
    be audited.

    `stage` is the step that raised an exception of this type with this message: `prepare`, `calibrate`, `convert`, or
    `run the reference`. `cause` is the ledger entry that explains it, `claims` are those that promise what the mapping
    asks for, and `form` is how the network calls the first of the layers.
    """

    operator: str
    stage: str
    exception: str
    message: str
    layers: tuple[str, ...] = ()
    cause: str | None = None
    claims: tuple[str, ...] = ()
    form: Form | None = None
    instead: str = "left in float"

    @property
    def error(self) -> str:
        return f"{self.exception}: {self.message}"

    @property
    def check(self) -> str:
        """The check that fails."""
        return {"convert": "lowered", "run the reference": "reference"}.get(self.stage, "observed")


@dataclass(frozen=True)
class Stability:
    """One repetition of the execution: `outcome` is `pass`, `fail` or `skip`, and `text` says why."""

    name: str
    outcome: str
    text: str = ""


@dataclass(frozen=True)
class Reduction:
    """The least model that still shows what a layer is blamed for.

    `company` is empty if the layer shows it alone, else the neighbours that it takes. `script` is a reproduction that imports
    only torch; empty, with the reason in `text`, if it could not be reduced.
    """

    layer: str
    text: str
    company: tuple[str, ...] = ()
    script: str = ""


@dataclass(frozen=True)
class Audit:
    """A network on an engine. The SQNRs in dB are those of the outputs joined: of the engine and of the reference against the
    float model, of the engine against the reference; None where equal. `outputs_db` has the engine's of each output in float.
    `tied_db` is the worst of the reference with values moved by a tie before they are rounded, measured only where the
    engine loses more than LOST_DB: a network may be so sensitive that two right roundings differ as much. Below `floor_db` an
    output is not usable. `failure` is why there is no more, or no more after the last layer, `stage` what it failed in, and
    `cause` the ledger entry that explains it. `remarks` say what is wrong with the inputs, or with outputs of integers.
    `delegates` is their number, None where an engine has none; `referenced` is false for a program without a reference.
    `time_ratio` is the time of a pass beside the float model's in eager mode, with one thread, `size_ratio` that of the
    weights as saved, of a program of ExecuTorch that of its file; None if not measured."""

    network: str
    engine: str
    backend: str
    layers: tuple[Layer, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    stability: tuple[Stability, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    engine_db: Finite | None = None
    reference_db: Finite | None = None
    agreement_db: Finite | None = None
    outputs_db: tuple[Finite | None, ...] = ()
    tied_db: Finite | None = None
    floor_db: Finite = USABLE_DB
    failure: str = ""
    stage: str = ""
    advice: str = ""
    cause: str | None = None
    remarks: tuple[str, ...] = ()
    delegates: Count | None = None
    referenced: bool = True
    time_ratio: Finite | None = None
    size_ratio: Finite | None = None
    seconds: Seconds = 0.0

    @cached_property
    def computing(self) -> tuple[Layer, ...]:
        """The layers that compute."""
        return tuple(layer for layer in self.layers if layer.arithmetic.computes)

    @property
    def integer_share(self) -> float:
        """The share of the layers that compute that do so in integers; 0 if none computes."""
        return self.share(Arithmetic.INTEGER)

    def share(self, arithmetic: Arithmetic) -> float:
        """The share of the layers that compute in a way; 0 if none computes."""
        if not self.computing:
            return 0.0
        return sum(layer.arithmetic is arithmetic for layer in self.computing) / len(self.computing)

    @property
    def blamed(self) -> tuple[Layer, ...]:
        """The layers that the engine is blamed for, in order of damage."""
        return tuple(sorted((layer for layer in self.layers if layer.blamed), key=lambda layer: layer.damage))

    @property
    def new(self) -> tuple[Layer, ...]:
        """The blamed layers of which some fault has no cause in the ledger."""
        return tuple(layer for layer in self.blamed if any(fault.cause is None for fault in layer.faults))

    @property
    def lost_db(self) -> float | None:
        """By how much the engine's output is worse than the reference's, against the float model; None if not measured."""
        if self.engine_db is None or self.reference_db is None:
            return None
        return self.reference_db - self.engine_db

    @property
    def loses(self) -> bool:
        """Whether the engine's output is worse than its reference's by more than LOST_DB, and ties do not explain it."""
        if self.engine_db is None or self.lost_db is None or self.lost_db <= LOST_DB:
            return False
        return self.tied_db is None or self.tied_db - self.engine_db > LOST_DB

    @property
    def broken(self) -> Layer | None:
        """The first layer that raises or ends the process: the network cannot run."""
        ends = (Crashes, LayerRaises)
        return next((one for one in self.layers if any(isinstance(fault.finding, ends) for fault in one.faults)), None)

    @property
    def state(self) -> State:
        """What becomes of the network if nothing is done about it."""
        if self.failure:
            return State.BROKEN if self.stage == "execute" else State.UNCONVERTED
        if self.refusals:
            return State.UNCONVERTED
        if self.broken is not None:
            return State.BROKEN
        if not self.repeats:  # what one run has says nothing of the next
            return State.UNUSABLE
        worst = min((db for db in (self.engine_db, *self.outputs_db) if db is not None), default=self.floor_db)
        return State.USABLE if worst >= self.floor_db else State.UNUSABLE

    @property
    def worst_output(self) -> int | None:
        """The number of the worst output, if it is not usable although all joined are: it may be small beside others."""
        apart = [math.inf if db is None else db for db in self.outputs_db]
        together = self.engine_db is None or self.engine_db >= self.floor_db
        return 1 + apart.index(min(apart)) if together and min(apart, default=math.inf) < self.floor_db else None

    @property
    def repeats(self) -> bool:
        """Whether a second run gives the same output."""
        return all(check.name != "repeatable" for check in self.unstable)

    @property
    def usable(self) -> bool:
        return self.state is State.USABLE

    @property
    def destroyer(self) -> Layer | None:
        """The layer whose value is under the floor, given the same inputs in float: the worst one. None if there is none."""
        under = [layer for layer in self.layers if layer.float_db is not None and layer.float_db < self.floor_db]
        return min(under, key=lambda layer: layer.float_db or 0.0, default=None)

    @property
    def unstable(self) -> tuple[Stability, ...]:
        return tuple(check for check in self.stability if check.outcome == "fail")

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong but what quantization itself costs, and that leaves the network usable."""
        return self.usable and not (self.failure or self.blamed or self.refusals or self.unstable or self.loses)


def to_json(audit: Audit) -> dict[str, Any]:
    """JSON object of an audit, with the version of its schema."""
    values = {"schema": SCHEMA, **encode(audit)}
    for layer, written in zip(audit.layers, values["layers"], strict=True):
        written["faults"] = [{"finding": fault.finding.to_json(), "cause": fault.cause} for fault in layer.faults]
    return values


def from_json(values: Mapping[str, Any]) -> Audit:
    """The audit of a JSON object. Raises TypeError for another schema and for a field that is missing, unknown or wrong."""
    if values.get("schema") != SCHEMA:
        raise TypeError(f"schema {values.get('schema')!r}; this version reads {SCHEMA}")
    audit: Audit = decode(Audit, {name: value for name, value in values.items() if name != "schema"})
    return audit
