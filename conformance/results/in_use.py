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
"""Every layer of the table that can be written, in the least sizes for which kernels take the same paths."""

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

ENGINE = "x86"
"""The engine whose audits are counted. Another config fuses other layers."""


@dataclass(frozen=True)
class LayerInUse:
    """A layer of the corpus.

    `pattern` is what it was matched as, `options` those of its operator, `inputs` the shapes of its inputs, `claim` whether a
    claim covers it, `producers` and `consumers` the patterns of the layers before and after it. `networks` have it,
    `occurrences` times in all.
    """

    pattern: str
    options: Mapping[str, str]
    inputs: tuple[str, ...]
    claim: bool
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    networks: int
    occurrences: int


def layers_in_use(audits: Iterable[Audit]) -> list[LayerInUse]:
    """The layers that compute of the networks audited on ENGINE, the most frequent first."""
    networks: dict[str, set[str]] = defaultdict(set)
    occurrences: Counter[str] = Counter()
    for audit in audits:
        if audit.engine != ENGINE:
            continue
        for text in _described(audit):
            networks[text].add(audit.network)
            occurrences[text] += 1
    found = []
    for text, count in occurrences.items():
        counts = {"networks": len(networks[text]), "occurrences": count}
        found.append(_decoded({**json.loads(text), **counts}))
    return sorted(found, key=lambda one: (-one.networks, -one.occurrences, one.pattern, json.dumps(one.options)))


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
    """The table as JSON Lines."""
    for one in found:
        yield json.dumps(encode(one), separators=(",", ":"))


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
    found: LayerInUse = decode(LayerInUse, values)
    return found
