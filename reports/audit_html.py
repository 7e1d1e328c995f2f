"""Audits of a network on several engines as one HTML file, which opens from disk and loads nothing.

Everything is in the file: it has no scripts, and its charts are SVG elements.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path
from types import MappingProxyType

from markupsafe import Markup

from conformance.results.audits import Arithmetic, Audit, Layer
from conformance.results.jsonl import replacing

from . import audit_words
from .html import HERE, bar, templates

NOTHING: Mapping[str, str] = MappingProxyType({})
CLASSES = {
    Arithmetic.INTEGER: "conforms",
    Arithmetic.NAME_ONLY: "deviates",
    Arithmetic.FLOAT: "unavailable",
}
"""The colors of the layers that compute, which the report has for verdicts."""


def write(
    audits: Sequence[Audit], path: Path, known: Mapping[str, str] = NOTHING, upstream: Mapping[str, str] = NOTHING
) -> Path:
    """Write the page of one or more audits to a file, replace it if it exists, and return its path.

    `known` are the reasons of the ledger's entries by id, `upstream` the issues that they were reported as. Raises UsageError
    for a file that cannot be written.
    """
    page = render(audits, known, upstream)
    with replacing(path, "-o") as beside:
        beside.write_text(page, encoding="utf-8")
    return path


def render(audits: Sequence[Audit], known: Mapping[str, str] = NOTHING, upstream: Mapping[str, str] = NOTHING) -> str:
    """The text of the page."""
    jinja = templates()
    called = (shares, numbers_of, reasons_of, cells, details, chart, id)
    jinja.globals |= {function.__name__: function for function in called}
    jinja.globals |= {"words": audit_words, "classes": CLASSES}
    return jinja.get_template("audit.html.j2").render(
        audits=audits,
        networks=[*dict.fromkeys(audit.network for audit in audits)],
        known=known,
        upstream=upstream,
        style=Markup((HERE / "static" / "report.css").read_text(encoding="utf-8")),
    )


def shares(audit: Audit) -> Sequence[tuple[str, float, float]]:
    """The parts of the bar of an engine's card: the layers that compute, by arithmetic."""
    return bar({name: sum(layer.arithmetic is kind for layer in audit.computing) for kind, name in CLASSES.items()})


def numbers_of(audit: Audit) -> dict[int, int]:
    """The numbers of an audit's layers, by the identity of the layer."""
    return {id(layer): number for number, layer in enumerate(audit.layers, 1)}


def reasons_of(audit: Audit) -> dict[str, int]:
    """The numbers of the reasons for which layers compute in float."""
    return {group.reason: group.number for group in audit_words.in_float(audit) if group.reason}


def cells(layer: Layer) -> list[str]:
    """The cells of a layer's row behind its kernels."""
    output = layer.output.text if layer.output else "float"
    codes_used = f"{layer.codes_used}/{layer.codes}" if layer.codes else ""
    return [*audit_words.cells(layer), output, codes_used, audit_words.some_percent(layer.latency)]


def details(layer: Layer) -> audit_words.Facts:
    """What is recorded of a layer, without what is empty."""
    inner = [
        ("pattern", layer.pattern),
        ("claim", layer.claim or "none"),
        ("in float, because", f"{layer.reason}, known as {layer.cause}" if layer.cause else layer.reason),
        ("kernels", " ".join(layer.kernels)),
        *audit_words.compared(layer),
        ("inputs", ", ".join(layer.inputs)),
        ("weight", layer.weight.text if layer.weight else ""),
        ("output", audit_words.qparams(layer)),
        ("shape", " × ".join(map(str, layer.shape))),
        ("codes", f"{layer.codes_used} of {layer.codes} used" if layer.codes else ""),
        ("clipped", audit_words.some_percent(layer.clipped)),
        ("time", audit_words.some_percent(layer.latency)),
        *((name, value) for name, value in layer.features.items()),
        *(("note", note) for note in layer.notes),
    ]
    return [(term, description) for term, description in inner if description]


WIDE, LEFT, RIGHT, TOP, BOTTOM = 1000, 52, 12, 14, 230
"""The width of a chart, its margins, and the places of `equal` and of the axis."""
STEP = 10
"""Decibels between horizontal lines, at least."""
MOST_LINES = 8


@dataclass(frozen=True)
class Chart:
    """The SQNR of the layers that are compared over their numbers. Layers that are equal are above all others.

    `count` is the number of all layers; `low` and `high` are the decibels of the lowest and the highest line, `step`
    those from one to the next.
    """

    count: int
    compared: Sequence[tuple[int, Layer]]
    low: int
    high: int
    step: int

    def x(self, number: int) -> float:
        """The place of a layer."""
        return round(LEFT + (number - 0.5) * (WIDE - LEFT - RIGHT) / self.count, 1)

    def y(self, decibel: float | None) -> float:
        """The place of an SQNR; None is equal."""
        top = self.high + self.step
        value = top if decibel is None else decibel
        return round(BOTTOM - (value - self.low) * (BOTTOM - TOP) / (top - self.low), 1)

    @property
    def lines(self) -> list[tuple[str, float]]:
        """The horizontal lines: their SQNRs and places."""
        decibels = range(self.low, self.high + 1, self.step)
        return [*((f"{decibel} dB", self.y(decibel)) for decibel in decibels), ("equal", self.y(None))]

    @property
    def ticks(self) -> list[int]:
        """The numbers of layers below the axis."""
        every = max(1, round(self.count / 10 / 5) * 5) if self.count >= 10 else 1
        return [*range(every, self.count + 1, every)]

    @property
    def summary(self) -> str:
        """What a reader sees in it, for those that do not see it."""
        local = [(layer.float_db, number, layer.name) for number, layer in self.compared]
        cumulative = [(layer.cumulative_db, number, layer.name) for number, layer in self.compared]
        return f"local SQNR {_lowest(local)}; cumulative SQNR {_lowest(cumulative)}"


def chart(audit: Audit) -> Chart | None:
    """The chart of an audit, or None if nothing was compared."""
    layers = enumerate(audit.layers, 1)
    compared = [(number, layer) for number, layer in layers if layer.agreement is not None and layer.agreement.total]
    if not compared:
        return None
    values = [db for _, layer in compared for db in (layer.float_db, layer.cumulative_db) if db is not None]
    # lines are at multiples of STEP
    low = floor(min([*values, 0.0]) / STEP) * STEP
    high = ceil(max([*values, 6.0 * STEP]) / STEP) * STEP
    step = STEP * ceil((high - low) / (MOST_LINES * STEP))
    return Chart(len(audit.layers), compared, low, low + step * ceil((high - low) / step), step)


def _lowest(values: Sequence[tuple[float | None, int, str]]) -> str:
    measured = [(decibel, number, name) for decibel, number, name in values if decibel is not None]
    if not measured:
        return "of every layer equal"
    decibel, number, name = min(measured)
    return f"is lowest, {decibel:.1f} dB, in layer {number}, {name}"
