"""An audit as text for a terminal: the figures of the network, what to blame the engine for, and a table of the layers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from conformance.markdown import plain
from conformance.results.audits import UNWANTED, Arithmetic, Audit, Layer, State

from . import audit_words, documents
from .audit_words import Facts, flags, in_float, in_rows, is_row, kernel, operator, percent
from .columns import cut, padded, path, shortened, width, wrapped

WIDTH = 100
BLANK = " "
"""An empty line. Those of the template are layout."""
NAMED = 20
"""Columns of the name of a network in a summary of one line, if it needs as many."""
NOTHING: Mapping[str, str] = MappingProxyType({})
SHORT = {
    Arithmetic.INTEGER: "int",
    Arithmetic.NAME_ONLY: "name",
    Arithmetic.FLOAT: "float",
    Arithmetic.CONVERSION: "conv.",
    Arithmetic.VIEW: "view",
}
LEGEND = {
    "in": "int: in integers; name: in integers in name only, by a quantized kernel that computes in float; float; "
    "with the number of the reason",
    "tied, wrong": "share of the elements that are one code off at a tie, or off otherwise",
    "local, total": "SQNR in dB against the float network given the same inputs, and against its own value here; "
    "= is equal, – not compared",
    "output": "scale/zero point",
    "time": "share of the network's time",
}


def text(audit: Audit, known: Mapping[str, str] = NOTHING, upstream: Mapping[str, str] = NOTHING) -> str:
    """The audit as lines of at most 100 columns, each with a line end.

    `known` are the reasons of the ledger's entries by id, `upstream` the issues that they were reported as.
    """
    lines = documents.lines(
        "audit.txt",
        audit=audit,
        known=known,
        upstream=upstream,
        symbol=_symbol(audit),
        layers=_layers(audit),
        said=set(),
        shown=set(),
        blank=BLANK,
        words=audit_words,
        mark=_mark,
        figures=_figures,
        at=lambda *sentence: "\n".join(_indented(*sentence)),
    )
    return "".join(f"{_inert(line)}\n" for line in lines if line)


def summary_line(audit: Audit) -> str:
    """The audit as one line of at most 100 columns: network and engine, what to blame, layers in integers, SQNR of the output
    beside that of the reference."""
    counts = {"blamed": len(audit.blamed), "new": len(audit.new), "refused": len(audit.refusals)}
    counts["unstable"] = len(audit.unstable)
    figures = [
        ", ".join(f"{number} {name}" for name, number in counts.items() if number)
        or ("nothing to blame" if audit.referenced else "no layer was compared")
    ]
    if audit.state in (State.UNUSABLE, State.BROKEN):
        figures.insert(0, audit.state)
    if audit.failure:
        figures = [f"not audited: {audit.failure}"]
    elif audit.computing:
        figures.append(f"{percent(audit.integer_share)} integer")
    if audit.engine_db is not None and audit.reference_db is not None:
        figures.append(f"{audit.engine_db:.1f} of {audit.reference_db:.1f} dB")
    what, engine = "; ".join(" ".join(plain(figure).split()) for figure in figures), cut(plain(audit.engine), 16)
    room = WIDTH - width(f" on {engine}: {_symbol(audit)} ")
    network = shortened(plain(audit.network), max(NAMED, room - width(what)))
    return _inert(f"{network} on {engine}: {_symbol(audit)} {what}")


def by_engine(audits: Sequence[Audit]) -> Iterator[str]:
    """The layers that compute, one in a line, and how each engine computes them, if that differs; then how many are on some
    engines only, because others compute them as a part of another layer."""
    tables = [{layer.name: layer for layer in audit.computing} for audit in audits]
    common = [name for name in tables[0] if all(name in table for table in tables)]
    rows = [(name, *(SHORT[table[name].arithmetic] for table in tables)) for name in common]
    differing = [row for row in rows if len({*row[1:]}) > 1]
    if not differing:
        return
    rows = [("", *(audit.engine for audit in audits)), *differing]
    if any(further := [len(table) - len(common) for table in tables]):
        rows.append(("further layers, which others compute as parts of these", *map(str, further)))
    yield "Layers that not all compute alike"
    yield from _aligned(rows)


def beside(audits: Sequence[Audit]) -> Iterator[str]:
    """The figures of one network beside each other, a column for each audit, then what is to blame."""
    rows = [("", *(audit.engine for audit in audits))]
    for term, figure in FIGURES.items():
        rows.append((term, *("–" if audit.failure and not audit.layers else figure(audit) for audit in audits)))
    yield from _aligned(rows)
    yield from by_engine(audits)
    yield from map(summary_line, audits)


FIGURES: Mapping[str, Callable[[Audit], str]] = {
    "output against float": lambda audit: audit_words.decibels(audit.engine_db) if audit.outputs_db else "–",
    "reference against float": lambda audit: audit_words.decibels(audit.reference_db) if audit.outputs_db else "–",
    "layers that compute": lambda audit: str(len(audit.computing)),
    "in integers": lambda audit: percent(audit.integer_share),
    "time beside float in eager mode": lambda audit: audit_words.ratio(audit.time_ratio),
    "size beside float": lambda audit: audit_words.ratio(audit.size_ratio),
    "to blame": lambda audit: str(len(audit.blamed)),
    "refused": lambda audit: str(len(audit.refusals)),
}
"""The rows of a comparison."""


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Lines of a table without rules, whose first column is indented."""
    cells = [[*map(plain, row)] for row in rows]
    lengths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        line = "  ".join(padded(cell, length) for cell, length in zip(row, lengths, strict=True))
        yield _inert(f"  {line}")


def _symbol(audit: Audit) -> str:
    if audit.holds:
        return "✓"
    new = (
        (audit.failure and audit.cause is None)
        or audit.new
        or (audit.state is State.UNUSABLE and not audit.blamed)
        or (audit.unstable and not audit.blamed)
        or any(refusal.cause is None for refusal in audit.refusals)
    )
    return "✗" if new else "~"


def _inert(line: str) -> str:
    """A line without control characters that is no workflow command, which GitHub executes also after spaces."""
    line = plain(line)
    start = len(line) - len(line.lstrip())
    if line[start:].startswith("::"):
        line = f"{line[:start]}\\u003a{line[start + 1 :]}"
    return cut(line, WIDTH).rstrip()


def _indented(sentence: str, indent: int, first: str = "") -> Iterator[str]:
    """Lines of a sentence behind spaces; the first one behind another beginning of the same width."""
    for number, line in enumerate(wrapped(sentence, WIDTH - indent)):
        yield (padded(first, indent) if first and not number else " " * indent) + line


def _figures(pairs: Facts) -> str:
    return "; ".join(f"{term}: {description}" for term, description in pairs)


def _mark(layer: Layer, refused: Iterable[str] = ()) -> str:
    if layer.blamed:
        return "✗" if any(fault.cause is None for fault in layer.faults) else "~"
    return "!" if layer.name in refused else " "


HEAD = ("", "layer", "operator", "kernel", "in", "tied", "wrong", "local", "total", "output", "time")
RIGHT = ("tied", "wrong", "local", "total", "time")
LEAST = {"layer": 20, "operator": 12, "kernel": 11, "output": 10}
"""Columns that are shortened where a row is too wide, and the width that they keep. The others are numbers."""


def _layers(audit: Audit) -> Iterator[str]:
    """The table of all layers in order of the network."""
    if not audit.layers and audit.failure:
        return
    if not audit.layers:
        yield from (BLANK, "The lowered network has no layers.")
        return
    yield from (BLANK, "Layers", BLANK)
    dtype = _usual_dtype(audit.layers)
    yield "  ✗ to blame, new   ~ to blame, known   ! refused   · converts or moves only"
    for term, description in LEGEND.items():
        usual = f", of {dtype} unless another dtype is given" if term == "output" and dtype else ""
        yield from _indented(description + usual, 16, f"  {term}")
    yield BLANK
    refused = {name for refusal in audit.refusals for name in refusal.layers}
    reasons = {group.reason: group.number for group in in_float(audit)}
    rows = [*in_rows(audit.layers)]
    cells = {number: _cells(row[0], refused, reasons, dtype) for number, row in enumerate(rows) if is_row(row[0])}
    widths = _widths([HEAD, *cells.values()])
    yield _row(HEAD, widths)
    said: set[str] = set()
    for number, row in enumerate(rows):
        if number not in cells:
            yield _thin(row)
            continue
        (layer,) = row
        yield _row(cells[number], widths)
        yield from _below(layer, reasons, said)


def _usual_dtype(layers: Iterable[Layer]) -> str:
    """The dtype of most outputs, which the head of the table says instead of every row."""
    dtypes = [layer.output.dtype for layer in layers if layer.output]
    return max(dict.fromkeys(dtypes), key=dtypes.count, default="")


def _cells(layer: Layer, refused: Iterable[str], reasons: Mapping[str, int], dtype: str) -> tuple[str, ...]:
    output = layer.output
    return (
        _mark(layer, refused),
        plain(layer.name),
        plain(operator(layer.pattern)),
        " ".join(plain(kernel(name)) for name in layer.kernels) or "–",
        SHORT[layer.arithmetic]
        + (f" {reasons[layer.reason]}" if layer.arithmetic in UNWANTED and layer.reason else ""),
        *audit_words.cells(layer, 1),
        plain(output.text.removeprefix(f"{dtype} ")) if output else "float",
        audit_words.some_percent(layer.latency, 1),
    )


def _widths(rows: Iterable[tuple[str, ...]]) -> tuple[int, ...]:
    """The width of each column: that of its widest cell, or less, so that a row fits."""
    widths = dict(zip(HEAD, (max(map(width, column)) for column in zip(*rows, strict=True)), strict=True))
    while sum(widths.values()) + len(HEAD) - 1 > WIDTH:
        longest = max(LEAST, key=lambda name: (widths[name] > LEAST[name], widths[name] / LEAST[name]))
        if widths[longest] <= LEAST[longest]:
            break
        widths[longest] -= 1
    return tuple(widths.values())


def _row(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    fitted = (
        padded((path if name == "layer" else shortened)(cell, columns), columns, name in RIGHT)
        for name, cell, columns in zip(HEAD, cells, widths, strict=True)
    )
    return " ".join(fitted).rstrip()


def _thin(layers: tuple[Layer, ...]) -> str:
    """One line of consecutive layers that convert or move only."""
    steps = [plain(operator(layer.pattern) + (f" {layer.output.text}" if layer.output else "")) for layer in layers]
    share = sum(layer.latency for layer in layers)
    time = f" {percent(share, 1)}" if share else ""
    line = cut(f"  · {' → '.join(steps)}", WIDTH - width(time))
    return padded(line, WIDTH - width(time)) + time if time else line


def _below(layer: Layer, reasons: Mapping[str, int], said: set[str]) -> Iterator[str]:
    """Lines below a row: the checks that fail, what else stands out, and a reason for float where it is the first time."""
    faults = [f"{fault.check}, {'NEW' if fault.cause is None else f'known as {fault.cause}'}" for fault in layer.faults]
    if remarks := "; ".join([*faults, *flags(layer)]):
        yield from _indented(remarks, 6, "    └")
    if layer.arithmetic in UNWANTED and layer.reason and layer.reason not in said:
        said.add(layer.reason)
        yield from _indented(f"{SHORT[layer.arithmetic]} {reasons[layer.reason]}: {layer.reason}", 6, "    └")
