"""What became of claims: each through FX and through PT2E, on the same data, and the file that keeps it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .codec import Finite, decode_fields, encode
from .jsonl import Format, read_text, replacing
from .verdicts import Shown


class Outcome(Shown):
    """What became of a claim, in the order in which they are shown."""

    KEPT = "kept", "kept, with the same numbers", "✓"
    OTHER = "other-numbers", "kept, with other numbers", "≠"
    GAINED = "gained", "gained", "▲"
    FLOAT = "float", "lost: annotated, and computed in float", "ƒ"
    NOT_ANNOTATED = "not-annotated", "lost: not annotated", "–"
    REFUSES = "refuses", "lost: refuses", "⊘"
    WRONG = "wrong", "lost: wrong", "✗"
    NOT_OFFERED = "not-offered", "lost: no such quantization", "∅"
    NEITHER = "neither", "works in neither", "·"
    UNAVAILABLE = "unavailable", "not executed", "?"


LOST = (Outcome.FLOAT, Outcome.NOT_ANNOTATED, Outcome.REFUSES, Outcome.WRONG, Outcome.NOT_OFFERED)
"""Outcomes of claims that worked through FX and do not through PT2E."""


@dataclass(frozen=True)
class Distance:
    """How far the results through PT2E are from those through FX.

    Of `total` elements `mismatched` differ by more than a tie or the rounding of float32: by up to `steps` of FX's output, or
    None if that is in float, and by up to `relative`, a part of the greatest value. `in_float` says whether PT2E's result is
    not quantized.
    """

    total: int
    mismatched: int
    steps: Finite | None
    relative: Finite
    in_float: bool


@dataclass(frozen=True)
class Migrated:
    """What became of a claim of a backend config on an engine.

    `pattern` is that of the counterpart, and `quantizer` and `engine` those that it went through. `promised` says whether the
    quantizer declares the pattern. `fx` and `pt2e` are the sentences of the two rows, empty where a row conforms. `ratio` is
    the latency through PT2E divided by that through FX, on a layer of a network.
    """

    claim: str
    fx_engine: str
    pattern: str
    flow: str
    quantizer: str
    engine: str
    promised: bool
    outcome: Outcome
    fx: str = ""
    pt2e: str = ""
    distance: Distance | None = None
    ratio: Finite | None = None

    @property
    def key(self) -> str:
        return f"{self.claim}@{self.fx_engine}"


FORMAT = Format[Migrated](
    name="a file of migrations",
    kinds=("migrated",),
    schemas=(1,),
    decode=lambda kind, values, schema: decode_fields(Migrated, values),
    encode=lambda one: ("migrated", encode(one)),
    key=lambda one: one.key,
    counts=lambda items: {"claims": len(items)},
    unit="claims",
    again="run `python -m conformance migrate --follow` again",
    compact=True,
)


def write(path: Path, header: Mapping[str, Any], items: Sequence[Migrated]) -> None:
    """Write a file, beside its place first."""
    lines = [FORMAT.line(*FORMAT.encode(one)) for one in items]
    text = FORMAT.part({**header, "schema": FORMAT.schemas[-1]}, lines, FORMAT.counts(items))
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def read(path: Path) -> tuple[dict[str, Any], tuple[Migrated, ...]]:
    """The header and the claims of a file.

    Raises UsageError naming the file that is missing, damaged, truncated or of another kind.
    """
    (part,) = read_text(FORMAT, path)
    return part.header, part.items
