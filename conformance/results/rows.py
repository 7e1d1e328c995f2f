"""Rows and their JSON Lines file: a header, a row for every run, and a footer that counts them."""

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from conformance.errors import UsageError

from .findings import Finding, from_json
from .profiles import CHECKS, CHECKS_OF

OUTCOMES = ("pass", "fail", "skip")


VERDICTS = ("conforms", "deviates", "crashes", "unavailable")


WORST_FIRST = ("crashes", "deviates", "conforms", "unavailable")
"""What was not executed counts only if nothing was."""


SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Row:
    """What one run came to. `steps_max` and the counts are over the elements that numerics compared: `mismatched` beyond the
    tolerance, `ties` with the other of two codes, `tolerated` within the tolerance, the rest equal."""

    id: str
    backend: str
    pattern: str
    dtype_config: str
    flow: str
    variant: str
    profile: str
    engine: str
    verdict: str
    checks: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""
    findings: tuple[Finding, ...] = ()
    kernels: tuple[str, ...] = ()
    steps_max: int | None = None
    mismatched: int | None = None
    ties: int | None = None
    tolerated: int | None = None
    total: int | None = None
    sqnr_db: float | None = None
    known: str | None = None
    seconds: float = 0.0

    @property
    def failed(self) -> frozenset[str]:
        """Names of the checks that failed; a crash counts as a check named `crashes`."""
        failed = {name for name, outcome in self.checks.items() if outcome == "fail"}
        return frozenset(failed | ({"crashes"} if self.verdict == "crashes" else set()))

    @property
    def claim(self) -> str:
        """The id of the claim that the run is of."""
        return f"{self.backend}/{self.pattern}/{self.dtype_config}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "findings": [one.to_json() for one in self.findings]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Row":
        """A row from its fields. Raises UsageError if there are others, or one is missing or of another type."""
        values = {"findings": [], **values}
        names = [f.name for f in fields(cls)]
        if unknown := set(values) - set(names):
            raise UsageError(f"a row has unknown fields: {', '.join(sorted(unknown))}")
        if missing := [name for name in names if name not in values]:
            raise UsageError(f"a row has no {', '.join(missing)}")
        for one in fields(cls):
            what, holds = TYPES[one.type]
            if not holds(values[one.name]):
                raise UsageError(f"{one.name} is {values[one.name]!r}, which is not {what}")
        try:
            findings = tuple(map(from_json, values["findings"]))
        except TypeError as error:
            raise UsageError(f"damaged finding: {error}") from error
        return cls(**{**values, "kernels": tuple(values["kernels"]), "findings": findings})


def _text(value: object) -> bool:
    return isinstance(value, str)


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


TYPES: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    str: ("a text", _text),
    str | None: ("a text or null", lambda value: value is None or _text(value)),
    int | None: ("a count or null", lambda value: value is None or _count(value)),
    float: ("a number of seconds", lambda value: _number(value) and value >= 0),
    float | None: ("a number or null", lambda value: value is None or _number(value)),
    tuple[Finding, ...]: ("a list of findings", lambda value: isinstance(value, list | tuple)),
    tuple[str, ...]: ("a list of texts", lambda value: isinstance(value, list | tuple) and all(map(_text, value))),
    Mapping[str, str]: (
        "texts by name",
        lambda value: isinstance(value, dict) and all(map(_text, (*value, *value.values()))),
    ),
}
"""By the annotation of a row's field: what JSON has in its place, in words, and whether a value is such."""


def contradiction(row: Row) -> str:
    """What is wrong with a row in itself: a word that is none, a verdict that its checks or an id that its fields belie."""
    if row.verdict not in VERDICTS:
        return f"verdict {row.verdict!r} is none of {', '.join(VERDICTS)}"
    for name, outcome in row.checks.items():
        if name not in CHECKS:
            return f"check {name!r} is none of {', '.join(CHECKS)}"
        if outcome not in OUTCOMES:
            return f"{name} is {outcome!r}, which is none of {', '.join(OUTCOMES)}"
    fail = sorted(name for name, outcome in row.checks.items() if outcome == "fail")
    if row.verdict in ("crashes", "unavailable"):
        if row.checks:
            return f"verdict {row.verdict!r} and checks"
    elif missing := [name for name in CHECKS_OF.get(row.profile, CHECKS) if name not in row.checks]:
        return f"it {row.verdict} and has no check {', '.join(missing)}"
    if row.verdict == "conforms" and fail:
        return f"it conforms and {', '.join(fail)} fails"
    if row.verdict == "deviates" and not fail:
        return "it deviates and no check fails"
    case = (row.backend, row.pattern, row.dtype_config, row.flow, row.variant, row.profile)
    named = f"{'/'.join(case)}@{row.engine}"
    return "" if named == row.id else f"its fields are those of {named}"


@dataclass(frozen=True)
class RowsFile:
    """The rows of one invocation in memory: a complete rows file, or a part of a merged one."""

    header: Mapping[str, Any]
    rows: tuple[Row, ...]
    footer: Mapping[str, Any]
    text: str
    """What stands in the file, word for word, with an end to its last line."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def counts(rows: Iterable[Row]) -> dict[str, Any]:
    """Count rows by verdict, deviations by check, and both by engine."""
    rows = list(rows)
    return {
        "rows": len(rows),
        "verdicts": {verdict: sum(r.verdict == verdict for r in rows) for verdict in VERDICTS},
        "checks": {check: sum(check in r.failed for r in rows) for check in CHECKS},
        "engines": {
            engine: dict(sorted(Counter(r.verdict for r in rows if r.engine == engine).items()))
            for engine in sorted({r.engine for r in rows})
        },
        "known": sum(r.known is not None for r in rows),
    }


def schema() -> dict[str, Any]:
    """The JSON Schema of one line of a rows file."""
    return json.loads((Path(__file__).parent / "rows.schema.json").read_text())  # type: ignore[no-any-return]


def _line(kind: str, values: Mapping[str, Any]) -> str:
    return json.dumps({"kind": kind, **values}, ensure_ascii=False, allow_nan=False) + "\n"


class Writer:
    """Writes a rows file: beside it while running, in its place when complete.

    An invocation that dies leaves `<path>.partial` with every row that it had. Raises UsageError if it cannot be written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path, self.header = path, {"schema": SCHEMA_VERSION, **header}
        self.partial = path.with_name(path.name + ".partial")
        self.rows: dict[str, Row] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise IsADirectoryError(21, "is a directory")
            self._file = self.partial.open("w", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--results {path}: {error.strerror}: name a file that can be written") from error
        self._file.write(_line("header", self.header))
        self._file.flush()

    def add(self, row: Row) -> None:
        self.rows[row.id] = row
        self._file.write(_line("row", row.to_json()))
        self._file.flush()

    @property
    def executed(self) -> int:
        """How many rows come from an execution."""
        return sum(row.verdict != "unavailable" for row in self.rows.values())

    def finish(self, footer: Mapping[str, Any]) -> str:
        """Put the rows in order of id, add the footer, and rename the file to its name. Returns its SHA-256."""
        rows = [self.rows[key] for key in sorted(self.rows)]
        self._file.close()
        aside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        lines = [
            _line("header", self.header),
            *(_line("row", r.to_json()) for r in rows),
            _line("footer", {**counts(rows), **footer}),
        ]
        text = "".join(lines)
        aside.write_text(text, encoding="utf-8")
        aside.replace(self.path)
        self.partial.unlink()
        return hashlib.sha256(text.encode()).hexdigest()


def refuse_constant(constant: str) -> float:
    """Raise ValueError for NaN and the infinities, which Python's parser takes for JSON."""
    raise ValueError(f"{constant} is no number")


class Line(NamedTuple):
    """A line of a file: its number, its text, and the JSON in it."""

    number: int
    text: str
    values: Any


def read(path: Path) -> RowsFile:
    """Read the complete rows file of one invocation; raises UsageError as `read_all` does, and for a merged file."""
    parts = read_all(path)
    if len(parts) > 1:
        raise UsageError(f"{path}: merged from {len(parts)} rows files, where that of one invocation is wanted")
    return parts[0]


def repro_command(run_id: str) -> str:
    """The command that prints the reproduction of a run."""
    quoted = run_id.replace("'", "'\\''")
    return f"python -m conformance repro '{quoted}'"


def worst(rows: Iterable[Row]) -> str:
    """The verdict on several runs together."""
    return min((row.verdict for row in rows), key=WORST_FIRST.index)


def read_all(path: Path) -> tuple[RowsFile, ...]:
    """Read a rows file, or several merged into one, each with its header and footer.

    Raises UsageError naming the file, and the row if it is one, that is missing, damaged, truncated, too new, or contradicts
    itself.
    """
    lines: list[Line] = []
    try:
        for number, text in enumerate(path.open(encoding="utf-8"), 1):
            lines.append(Line(number, text, json.loads(text, parse_constant=refuse_constant)))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}:{len(lines) + 1}: not a rows file, or damaged: {error}; run it again") from error
    if not lines:
        raise UsageError(f"{path}: empty: the invocation that should have written it did not start; run it again")
    return tuple(_assemble(path, part) for part in _parts(path, lines))


def _row(place: str, values: Mapping[str, Any]) -> Row:
    """One row of a file; `place` is where it stands."""
    try:
        row = Row.from_json({name: value for name, value in values.items() if name != "kind"})
    except UsageError as error:
        raise UsageError(f"{place}: damaged row {values.get('id')}: {error}") from error
    if wrong := contradiction(row):
        raise UsageError(f"{place}: damaged row {row.id}: {wrong}")
    return row


def _parts(path: Path, lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines of each invocation: from a header to the footer that follows it."""
    part: list[Line] = []
    for line in lines:
        kind = line.values.get("kind") if isinstance(line.values, dict) else None
        if kind not in ("header", "row", "footer"):
            raise UsageError(f"{path}:{line.number}: not a line of a rows file")
        if kind != "header" and not part:
            lost = f"{path}: has no header" if line.number == 1 else f"{path}:{line.number}: a {kind} without a header"
            raise UsageError(f"{lost}: not a rows file, or its beginning is lost")
        if kind == "header":
            if part:
                break
            _readable(path, line.values)
        part.append(line)
        if kind == "footer":
            yield part
            part = []
    if part:
        raise UsageError(f"{path}: truncated: it has no footer, so rows may be missing; run it again")


def _readable(path: Path, header: Mapping[str, Any]) -> None:
    if (schema := header.get("schema")) != SCHEMA_VERSION:
        raise UsageError(
            f"{path}: schema {schema!r}; this version reads {SCHEMA_VERSION}: take version {header.get('suite')} of the "
            "suite, which wrote it, or run it again"
        )


def _assemble(path: Path, lines: Sequence[Line]) -> RowsFile:
    header, footer = lines[0].values, lines[-1].values
    rows = tuple(_row(f"{path}:{line.number}", line.values) for line in lines[1:-1])
    repeated = [key for key, count in Counter(row.id for row in rows).items() if count > 1]
    if repeated:
        raise UsageError(f"{path}: duplicate row {repeated[0]}")
    for name, count in counts(rows).items():
        if footer.get(name) != count:
            what = "rows" if name == "rows" else f"{name} of rows"
            raise UsageError(f"{path}: damaged: the footer counts {footer.get(name)} {what}, there are {count}")
    return RowsFile(header, rows, footer, "".join(line.text for line in lines).removesuffix("\n") + "\n")
