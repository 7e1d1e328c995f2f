"""What the ledger says of the layers of a network before any kernel runs, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .audits import Arithmetic, Refusal
from .codec import decode, encode
from .severity import Severity

SCHEMA = "conformance-prediction/1"


@dataclass(frozen=True)
class Foretold:
    """A known finding that a layer will show, by its id in the ledger: the check that fails, how bad that is, and under which
    `conditions`, which data decide; none if it shows whatever they are."""

    cause: str
    check: str
    severity: Severity
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True)
class PredictedLayer:
    """A layer of a network.

    `name`, `pattern`, `claim`, `arithmetic`, `reason` and `features` are those that an audit has. `foretold` are the findings
    that it will show, the worst first.
    """

    name: str
    pattern: str
    claim: str | None
    arithmetic: Arithmetic
    reason: str
    features: Mapping[str, str]
    foretold: tuple[Foretold, ...] = ()

    @property
    def certain(self) -> tuple[Foretold, ...]:
        """The findings that it shows whatever the data."""
        return tuple(one for one in self.foretold if not one.conditions)


@dataclass(frozen=True)
class Prediction:
    """What the ledger says of a network on an engine of a platform, such as `x86_64 avx512_vnni`. `failure` is why there
    is no more."""

    network: str
    engine: str
    backend: str
    platform: str
    torch: str
    layers: tuple[PredictedLayer, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    failure: str = ""
    advice: str = ""

    @cached_property
    def computing(self) -> tuple[PredictedLayer, ...]:
        """The layers that compute."""
        return tuple(layer for layer in self.layers if layer.arithmetic.computes)

    @property
    def integer_share(self) -> float:
        """The share of the layers that compute that will do so in integers; 0 if none computes."""
        integer = sum(layer.arithmetic is Arithmetic.INTEGER for layer in self.computing)
        return integer / len(self.computing) if self.computing else 0.0

    @property
    def holds(self) -> bool:
        """Whether nothing is foretold that shows whatever the data, and nothing is refused."""
        return not (self.failure or self.refusals or any(layer.certain for layer in self.layers))


def to_json(prediction: Prediction) -> dict[str, Any]:
    """JSON object of a prediction, with the version of its schema."""
    return {"schema": SCHEMA, **encode(prediction)}


def from_json(values: Mapping[str, Any]) -> Prediction:
    """The prediction of a JSON object. Raises TypeError for another schema and for a field that is missing, unknown or
    wrong."""
    if values.get("schema") != SCHEMA:
        raise TypeError(f"schema {values.get('schema')!r}; this version reads {SCHEMA}")
    prediction: Prediction = decode(Prediction, {name: value for name, value in values.items() if name != "schema"})
    return prediction
