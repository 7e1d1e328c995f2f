"""Rows and their JSON Lines file: a header, a row for every run, and a footer that counts them."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from .errors import UsageError

CHECKS = ("matched", "observed", "reference", "constraints", "lowered", "numerics", "accuracy", "stable")
VERDICTS = ("conforms", "deviates", "crashes", "unavailable")
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Row":
        unknown = set(values) - {f.name for f in fields(cls)}
        if unknown:
            raise UsageError(f"a row has unknown fields: {', '.join(sorted(unknown))}")
        return cls(**{**values, "kernels": tuple(values["kernels"])})


@dataclass(frozen=True)
class RowsFile:
    """A complete rows file in memory."""

    header: Mapping[str, Any]
    rows: tuple[Row, ...]
    footer: Mapping[str, Any]


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

    def finish(self, footer: Mapping[str, Any]) -> None:
        """Put the rows in order of id, add the footer, and rename the file to its name."""
        rows = [self.rows[key] for key in sorted(self.rows)]
        self._file.close()
        aside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        lines = [
            _line("header", self.header),
            *(_line("row", r.to_json()) for r in rows),
            _line("footer", {**counts(rows), **footer}),
        ]
        aside.write_text("".join(lines), encoding="utf-8")
        aside.replace(self.path)
        self.partial.unlink()


def read(path: Path) -> RowsFile:
    """Read a complete rows file. Raises UsageError naming the file if it is missing, damaged, truncated or too new."""
    try:
        lines = [(number, json.loads(line)) for number, line in enumerate(path.open(encoding="utf-8"), 1)]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not a rows file, or damaged: {error}") from error
    if not lines:
        raise UsageError(f"{path}: empty: the invocation that should have written it did not start")
    return _assemble(path, lines)


def _assemble(path: Path, lines: list[tuple[int, Any]]) -> RowsFile:
    for number, line in lines:
        if not isinstance(line, dict) or line.get("kind") not in ("header", "row", "footer"):
            raise UsageError(f"{path}:{number}: not a line of a rows file")
    header, footer = lines[0][1], lines[-1][1]
    if header["kind"] != "header":
        raise UsageError(f"{path}: has no header: not a rows file, or its beginning is lost")
    if header.get("schema") != SCHEMA_VERSION:
        raise UsageError(f"{path}: schema {header.get('schema')!r}; this version reads {SCHEMA_VERSION}")
    if footer["kind"] != "footer":
        raise UsageError(f"{path}: truncated: it has no footer, so rows may be missing; run it again")
    for number, line in lines[1:-1]:
        if line["kind"] != "row":
            raise UsageError(f"{path}:{number}: a second {line['kind']}: one file holds one invocation")
    try:
        rows = tuple(Row.from_json({k: v for k, v in line.items() if k != "kind"}) for _, line in lines[1:-1])
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path}: damaged row: {error}") from error
    if footer.get("rows") != len(rows):
        raise UsageError(f"{path}: damaged: the footer counts {footer.get('rows')} rows, there are {len(rows)}")
    repeated = [key for key, count in Counter(row.id for row in rows).items() if count > 1]
    if repeated:
        raise UsageError(f"{path}: duplicate row {repeated[0]}")
    return RowsFile(header, rows, footer)
