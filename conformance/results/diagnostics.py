"""Diagnostics of runs: graphs, quantization parameters, errors by position and scripts, in a file beside the rows.

The file is gzip of JSON Lines: a header, a line for each run that was executed, and a footer that counts them. The header has
the SHA-256 of the rows that it belongs to, so that diagnostics are not mistaken for those of another invocation.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.errors import UsageError

from .codec import Count, Finite, decode_fields, encode
from .jsonl import Format, Part, replacing
from .jsonl import read as read_lines
from .rows import RowsFile

SUFFIX = ".details.jsonl.gz"
MOST_POSITIONS = 1024
"""Maximum number of elements of one output whose offsets are kept; the greatest offsets are kept first."""
NO_MATCH = "no match"
"""Unit of an output that cannot be compared with its golden, such as one of another shape."""


@dataclass(frozen=True)
class Offsets:
    """Errors of an engine's output by element.

    `output` describes the output, `unit` is `steps` (of the golden's scale), `values` for float outputs, or NO_MATCH. Of
    `total` elements `differing` differ from the golden; `positions` (flat indices) and `offsets` are theirs, at most
    MOST_POSITIONS, and `ties` are those positions where the golden lies at a tie and the engine has the other of its two
    codes. `histogram` covers all elements that differ: pairs of an offset, or the middle of a bin, and a count. NaN and
    infinities count as the greatest float32. `golden` and `codes` are digests of both outputs.
    """

    output: str
    unit: str
    total: Count
    differing: Count
    positions: tuple[Count, ...] = ()
    offsets: tuple[Finite, ...] = ()
    ties: tuple[Count, ...] = ()
    histogram: tuple[tuple[Finite, Count], ...] = ()
    golden: str = ""
    codes: str = ""

    @property
    def complete(self) -> bool:
        """Whether the position of every element that differs is kept."""
        return self.differing == len(self.positions)


@dataclass(frozen=True)
class Details:
    """Diagnostics of one run: texts by title, in order, the offsets of each output, and a script that reproduces the
    deviation, or an empty text."""

    id: str
    sections: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[Offsets, ...] = ()
    reproduction: str = ""

    @property
    def line(self) -> str:
        """The line of the file."""
        return FORMAT.line(*FORMAT.encode(self))


FORMAT: Format[Details] = Format(
    name="a file of details",
    kinds=("run",),
    schemas=(1,),
    decode=lambda kind, values, schema: decode_fields(Details, values),
    encode=lambda details: ("run", encode(details)),
    key=lambda details: details.id,
    counts=lambda runs: {"runs": len(runs)},
    unit="runs",
    again="run it again, or remove this file",
    mark="rows",
    compact=True,
)
"""Files of diagnostics, before compression."""


def schema() -> dict[str, Any]:
    """The JSON Schema of one line of a file of diagnostics."""
    return json.loads((Path(__file__).parent / "diagnostics.schema.json").read_text())  # type: ignore[no-any-return]


def path_beside(rows: Path) -> Path:
    """Where the diagnostics of a rows file are."""
    return rows.with_name(rows.name.removesuffix(".jsonl") + SUFFIX)


class Writer:
    """Collects diagnostics while running, compressed one by one, and writes the file when the rows are complete."""

    def __init__(self) -> None:
        self._lines: dict[str, bytes] = {}

    def add(self, run_id: str, line: str) -> None:
        """Add the line of a run."""
        self._lines[run_id] = zlib.compress(line.encode(), 1)

    def finish(self, rows: Path, digest: str) -> None:
        """Write the file beside the rows with this SHA-256."""
        lines = [zlib.decompress(self._lines[key]).decode() for key in sorted(self._lines)]
        write(rows, [part_text(digest, lines)], "--results")


def part_text(digest: str, lines: Sequence[str]) -> str:
    """The text of a part with these lines, which belong to the rows with this SHA-256."""
    return FORMAT.part({"schema": FORMAT.schemas[-1], "rows": digest}, lines, {"runs": len(lines)})


def write(rows: Path, parts: Iterable[str], option: str = "") -> None:
    """Write the texts of parts as the diagnostics of a rows file, which an option names."""
    # no time and no name in the gzip header: equal diagnostics are equal files
    with (
        replacing(path_beside(rows), option) as beside,
        beside.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as file,
    ):
        for part in parts:
            file.write(part.encode())


def read(rows: Path, parts: Sequence[RowsFile]) -> list[dict[str, Details]]:
    """The diagnostics of each part of a rows file, by run id; empty ones if there is no file beside it.

    Raises UsageError naming the file if it is damaged, truncated, too new, or belongs to other rows.
    """
    found = _parts(rows)
    path = path_beside(rows)
    lost = [part for part in parts if part.digest not in found]
    if found and lost:
        raise UsageError(
            f"{path}: belongs to other rows than {rows.name} has ({len(lost)} of {len(parts)} parts); {FORMAT.again}"
        )
    return [_by_run(path, part, found[part.digest].items) if found else {} for part in parts]


def _by_run(path: Path, part: RowsFile, items: Iterable[Details]) -> dict[str, Details]:
    by_run = {details.id: details for details in items}
    if strange := by_run.keys() - {row.id for row in part.rows}:
        raise UsageError(f"{path}: damaged: it has details of {min(strange)}, of which there is no row; {FORMAT.again}")
    return by_run


def _parts(rows: Path) -> dict[str, Part[Details]]:
    """The parts of the file beside a rows file, by the digest of the rows that they belong to; none if there is no file."""
    path = path_beside(rows)
    if not path.exists():
        return {}
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            parts = read_lines(FORMAT, path, file)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: damaged or truncated: {error}; {FORMAT.again}") from error
    return {str(part.header.get("rows")): part for part in parts}
