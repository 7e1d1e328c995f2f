"""What an invocation saw beyond its rows, in a compressed file beside them: graphs, qparams, errors by position, scripts.

The file is gzip of JSON Lines: a header, a line for every run that was executed, and a footer that counts them. Its header
has the SHA-256 of the rows that it belongs to, so that neither can be taken for another invocation's.
"""

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from conformance.errors import UsageError

from .rows import RowsFile, refuse_constant

SCHEMA_VERSION = 1
SUFFIX = ".details.jsonl.gz"
MOST_POSITIONS = 1024
"""Elements of one output whose offsets are kept; of more those that are off furthest."""
NO_MATCH = "no match"
"""The unit of an output that has nothing in common with its golden, such as one of another shape."""


@dataclass(frozen=True)
class Offsets:
    """How far an engine's output is from its golden, element by element.

    `output` is what the engine gave in words, `unit` is `steps` (of the golden's scale), `values` for float outputs, or
    NO_MATCH. Of `total` elements `differing` are off; `positions` (flat indices) and `offsets` are theirs, no more than
    MOST_POSITIONS, and `ties` those positions where the golden lies at a tie and the engine has the other of its two codes.
    `histogram` has all elements that are off: pairs of an offset, or the middle of a bin, and a count. A value that is no
    number counts as the greatest of float32. `golden` and `codes` are digests of both outputs.
    """

    output: str
    unit: str
    total: int
    differing: int
    positions: tuple[int, ...] = ()
    offsets: tuple[float, ...] = ()
    ties: tuple[int, ...] = ()
    histogram: tuple[tuple[float, int], ...] = ()
    golden: str = ""
    codes: str = ""

    @property
    def complete(self) -> bool:
        """Whether every element that is off has its position here."""
        return self.differing == len(self.positions)


@dataclass(frozen=True)
class Details:
    """What there is to see of one run: texts by title, in order, the offsets of each output, and a script that comes to the
    same finding, if it deviates."""

    id: str
    sections: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[Offsets, ...] = ()
    reproduction: str = ""

    @property
    def line(self) -> str:
        """The line of the file."""
        return _line("run", asdict(self))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Details":
        """Details from their fields. Raises UsageError if these are not what they have to be."""
        _check(values, cls)
        for number, output in enumerate(values["outputs"]):
            if not isinstance(output, dict):
                raise UsageError(f"output {number} is no object")
            _check(output, Offsets)
        outputs = [Offsets(**{name: _frozen(value) for name, value in one.items()}) for one in values["outputs"]]
        return cls(values["id"], dict(values["sections"]), tuple(outputs), values["reproduction"])


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _list_of(holds: Any) -> Any:
    return lambda value: isinstance(value, list | tuple) and all(map(holds, value))


def _pair(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_number, value))


def _count(value: object) -> bool:
    return _number(value) and isinstance(value, int) and value >= 0


HOLDS: dict[Any, Any] = {
    str: lambda value: isinstance(value, str),
    int: _count,
    tuple[int, ...]: _list_of(_count),
    tuple[float, ...]: _list_of(_number),
    tuple[tuple[float, int], ...]: _list_of(_pair),
    tuple[Offsets, ...]: lambda value: isinstance(value, list | tuple),
    Mapping[str, str]: lambda value: isinstance(value, dict) and all(isinstance(one, str) for one in value.values()),
}
"""By the annotation of a field: whether a JSON value is such."""


def _check(values: Mapping[str, Any], of: type) -> None:
    names = [one.name for one in fields(of)]
    if wrong := sorted(set(values) ^ set(names)):
        raise UsageError(f"{', '.join(wrong)} is missing or unknown")
    for one in fields(of):
        if not HOLDS[one.type](values[one.name]):
            raise UsageError(f"{one.name} is {str(values[one.name])[:80]!r}")


def schema() -> dict[str, Any]:
    """The JSON Schema of one line of a file of details."""
    return json.loads((Path(__file__).parent / "diagnostics.schema.json").read_text())  # type: ignore[no-any-return]


def path_beside(rows: Path) -> Path:
    """Where the details of a rows file are."""
    return rows.with_name(rows.name.removesuffix(".jsonl") + SUFFIX)


def _line(kind: str, values: Mapping[str, Any]) -> str:
    return json.dumps({"kind": kind, **values}, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


class Writer:
    """Gathers details while running, compressed one by one, and writes the file when the rows are complete."""

    def __init__(self) -> None:
        self._lines: dict[str, bytes] = {}

    def add(self, run_id: str, line: str) -> None:
        """Take the line of a run."""
        self._lines[run_id] = zlib.compress(line.encode(), 1)

    def finish(self, rows: Path, digest: str) -> None:
        """Write the file beside the rows, whose SHA-256 is given."""
        write(rows, [(digest, [zlib.decompress(self._lines[key]).decode() for key in sorted(self._lines)])])


def write(rows: Path, parts: Iterable[tuple[str, list[str]]]) -> None:
    """Write the details of a rows file that has these parts: of each its digest and the lines of its runs."""
    path = path_beside(rows)
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    # no time and no name in the header: the same details make the same bytes
    with aside.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        for digest, lines in parts:
            file.write(_line("header", {"schema": SCHEMA_VERSION, "rows": digest}).encode())
            for line in lines:
                file.write(line.encode())
            file.write(_line("footer", {"runs": len(lines)}).encode())
    aside.replace(path)


def read(rows: Path, parts: Sequence[RowsFile]) -> list[dict[str, Details]]:
    """The details of each part of a rows file, by run id; empty ones if there is no file beside it.

    Raises UsageError naming the file if it is damaged, truncated, too new, or belongs to other rows.
    """
    path = path_beside(rows)
    if not path.exists():
        return [{} for _ in parts]
    found = lines_of(path)
    if lost := [part for part in parts if part.digest not in found]:
        raise UsageError(
            f"{path}: belongs to other rows than {rows.name} has ({len(lost)} of {len(parts)} parts): run it again, or "
            "remove this file"
        )
    return [{line.id: line for line in _all(path, part, found[part.digest])} for part in parts]


def lines_of(path: Path) -> dict[str, list[str]]:
    """The lines of the runs in a file of details, by the digest of the rows that they belong to."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines = list(file)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UsageError(f"{path}: damaged or truncated: {error}: run it again, or remove this file") from error
    parts: dict[str, list[str]] = {}
    rest = iter(lines)
    for line in rest:
        header = _loaded(path, line)
        if header.get("kind") != "header":
            raise UsageError(f"{path}: has no header: not a file of details, or damaged")
        if header.get("schema") != SCHEMA_VERSION:
            raise UsageError(f"{path}: schema {header.get('schema')!r}; this version reads {SCHEMA_VERSION}")
        runs: list[str] = []
        for line in rest:
            if not line.startswith('{"kind":"run"'):
                break
            runs.append(line)
        else:
            raise UsageError(f"{path}: truncated: it has no footer; run it again, or remove this file")
        counted = _loaded(path, line).get("runs")
        if counted != len(runs):
            raise UsageError(f"{path}: damaged: the footer counts {counted} runs, there are {len(runs)}")
        parts[str(header.get("rows"))] = runs
    if not parts:
        raise UsageError(f"{path}: empty: run it again, or remove this file")
    return parts


def _loaded(path: Path, line: str) -> dict[str, Any]:
    try:
        values = json.loads(line, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: damaged: {error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path}: not a file of details, or damaged")
    return values


def _all(path: Path, part: RowsFile, lines: Iterable[str]) -> Iterator[Details]:
    ids = {row.id for row in part.rows}
    for line in lines:
        values = _loaded(path, line)
        try:
            details = Details.from_json({name: value for name, value in values.items() if name != "kind"})
        except UsageError as error:
            raise UsageError(f"{path}: damaged details of {str(values.get('id'))[:200]}: {error}") from error
        if details.id not in ids:
            raise UsageError(f"{path}: damaged: it has details of {details.id}, of which there is no row")
        yield details
