"""Layers in use: every distinct layer of the networks of the corpus, and how often they have it."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .audits import Arithmetic, Audit, Layer
from .codec import decode, encode

PATH = Path(__file__).parents[1] / "networks" / "layers_in_use.jsonl"
"""The committed table."""

REPRESENTATIVE = PATH.with_name("representative_layers.jsonl")
"""The layers of the table that engines which lower ahead of time are tried with."""

SHRUNK = PATH.with_name("shrunk_layers.jsonl")
"""Every layer of the table: those that can be written, in the least sizes for which kernels take the same paths, with the
variant that is run."""

NOT_OPTIONS = frozenset(
    {
        "aliased",
        "operator",
        "inputs",
        "formats",
        "dtypes",
        "producers",
        "consumers",
        "calls",
        "greatest_scale_ratio",
        "least_scale_ratio",
        "broadcast",
        "elements",
        "equal_channels",
        "folded",
        "greatest_code",
        "greatest_slope",
        "grid",
        "kind",
    }
)
"""Features of a layer that are not options of its operator."""

UNSTATED: Mapping[str, object] = {"variant": "", "run_as": "", "representative": []}
"""Fields that are left out of a line where they have these values."""

ENGINE = "x86"
"""The engine whose audits are counted. Another config fuses other layers."""


@dataclass(frozen=True)
class LayerInUse:
    """A layer of the corpus.

    `pattern` is what it was matched as, `options` those of its operator, `inputs` the shapes of its inputs, `claim` whether a
    claim covers it, `producers` and `consumers` the patterns of the layers before and after it. `networks` have it, each so
    many times. `variant` is the name of the variant that is run in its place, of the pattern `run_as` if that is not its own;
    `representative` are the pattern and variant of the layer that engines run which lower ahead of time. They are empty if
    none is run, and in a table of no variants.
    """

    pattern: str
    options: Mapping[str, str]
    inputs: tuple[str, ...]
    claim: bool
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    networks: Mapping[str, int]
    variant: str = ""
    run_as: str = ""
    representative: tuple[str, ...] = ()

    @property
    def occurrences(self) -> int:
        """How many layers of networks are like it."""
        return sum(self.networks.values())


def layers_in_use(audits: Iterable[Audit]) -> list[LayerInUse]:
    """The layers that compute of the networks audited on ENGINE, the most frequent first."""
    networks: dict[str, Counter[str]] = defaultdict(Counter)
    for audit in audits:
        if audit.engine == ENGINE:
            for text in _described(audit):
                networks[text][audit.network] += 1
    found = [_decoded({**json.loads(text), "networks": dict(sorted(of.items()))}) for text, of in networks.items()]
    return sorted(found, key=lambda one: (-len(one.networks), -one.occurrences, one.pattern, json.dumps(one.options)))


def _described(audit: Audit) -> Iterator[str]:
    """Each layer that computes, without what distinguishes it from an equal one, as JSON."""
    layers = {layer.name: layer for layer in audit.layers}
    consumers: dict[str, list[str]] = defaultdict(list)
    for layer in audit.computing:
        for name in _computing(layer, layers):
            consumers[name].append(layer.pattern)
    for layer in audit.computing:
        options = {name: value for name, value in sorted(layer.features.items()) if name not in NOT_OPTIONS}
        values = {
            "pattern": layer.pattern,
            "options": options,
            "inputs": layer.features.get("inputs", "").split(),
            "claim": layer.claim is not None,
            "producers": [layers[name].pattern for name in _computing(layer, layers)],
            "consumers": sorted(consumers[layer.name]),
        }
        yield json.dumps(values)


def _computing(layer: Layer, layers: Mapping[str, Layer]) -> list[str]:
    """The names of the layers whose results a layer takes, through conversions and views."""
    found = []
    for name in layer.inputs:
        if (source := layers.get(name)) is None:
            continue
        through = source.arithmetic in (Arithmetic.CONVERSION, Arithmetic.VIEW)
        found += _computing(source, layers) if through else [name]
    return found


def lines(found: Iterable[LayerInUse]) -> Iterator[str]:
    """The table as JSON Lines, without what is empty of what is run."""
    for one in found:
        values = {name: value for name, value in encode(one).items() if value or name not in UNSTATED}
        yield json.dumps(values, separators=(",", ":"))


def read(path: Path = PATH) -> list[LayerInUse]:
    """The layers of a table."""
    with path.open(encoding="utf-8") as file:
        return [_decoded(json.loads(line)) for line in file]


@cache
def occurrences_by_pattern() -> Counter[str]:
    """How many layers of the networks of the corpus are of each pattern."""
    occurrences: Counter[str] = Counter()
    for layer in read():
        occurrences[layer.pattern] += layer.occurrences
    return occurrences


def _decoded(values: dict[str, Any]) -> LayerInUse:
    found: LayerInUse = decode(LayerInUse, {**UNSTATED, **values})
    return found
