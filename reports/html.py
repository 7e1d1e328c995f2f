"""The HTML report: a folder that opens from disk and loads nothing from elsewhere.

What every run came to is one script of columns, which the map filters; what there is to see of a run is in one compressed
script for each pattern, loaded when it is opened, because a page from disk cannot fetch.
"""

import base64
import gzip
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from conformance.errors import UsageError
from conformance.markdown import plain
from conformance.paths import GOLDEN
from conformance.progress import progress
from conformance.reports import constraints
from conformance.results.constraints import DOCUMENTED
from conformance.results.profiles import CHECKS
from conformance.results.rows import VERDICTS, Row, repro_command

from . import findings
from .gathered import Gathered, Result, family

HERE = Path(__file__).parent
MARK = "conformance-report"
"""The file that tells a report from a folder of somebody's own."""
FAILURES = (*CHECKS, "crashes")
FIELDS = ("column", "pattern", "dtype", "flow", "variant", "profile", "verdict", "failed", "known", "flags")
"""What the map knows of each run, as numbers."""
NEW, DIFFERS, SEEN = 1, 2, 4
"""Bits of a run's flags: not as the ledger says, other on another column, with details."""
PAGES = {
    "index": "Map",
    "findings": "Findings",
    "constraints": "Constraints",
    "environments": "Environments",
}
SYMBOLS = {"conforms": "✓", "deviates": "✗", "crashes": "‼", "unavailable": "–"}
WORDS = {"conforms": "kept", "deviates": "deviating", "crashes": "crashing", "unavailable": "unavailable"}
"""What a claim is whose runs have a verdict."""


def write(gathered: Gathered, folder: Path) -> Path:
    """Write the report into a folder, in the place of an earlier one, and return its first page.

    Raises UsageError for a folder that holds something else.
    """
    with taken(folder):
        shutil.rmtree(folder / "data", ignore_errors=True)
        (folder / "data").mkdir()
        _data(gathered, folder / "data")
        for name, text in pages(gathered).items():
            (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder / "index.html"


@contextmanager
def taken(folder: Path) -> Iterator[None]:
    """A folder for pages, with what they all load. Raises UsageError if it holds something else or cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not (folder / MARK).exists():
            raise UsageError(f"-o {folder}: not empty, and no report: name another folder")
        (folder / MARK).write_text("what is here may be replaced\n")
        shutil.rmtree(folder / "assets", ignore_errors=True)
        shutil.copytree(HERE / "static", folder / "assets")
        shutil.copytree(HERE / "vendor", folder / "assets" / "vendor")
        yield
    except OSError as error:
        raise UsageError(f"-o {folder}: {error.strerror}: name a folder that can be written") from error


def templates() -> Environment:
    """What renders templates: all values are escaped, and a name that is missing is an error."""
    return Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def pages(gathered: Gathered) -> dict[str, str]:
    """The pages by name."""
    jinja = templates()
    jinja.filters |= {"codes": codes, "link": findings.link, "visible": visible}
    jinja.globals |= {"pages": PAGES, "symbols": SYMBOLS, "words": WORDS, "command": repro_command, "bar": bar}
    contexts: dict[str, dict[str, Any]] = {
        "index": {"textures": {"deviates": "stripes", "crashes": "dots"}},
        "findings": {"areas": findings.areas(gathered)},
        "constraints": _constraints(gathered),
        "environments": {"goldens": goldens()},
    }
    return {
        name: jinja.get_template(f"{name}.html.j2").render(gathered=gathered, page=name, **context)
        for name, context in contexts.items()
    }


def codes(text: str) -> Markup:
    """Text with what stands between backticks as code."""
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if number % 2 else escape(piece) for number, piece in enumerate(pieces)
    )


def visible(value: Any) -> Any:
    """A value with the control characters of its texts made visible, but for the ends of lines."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else "\n".join(map(plain, value.split("\n")))
    if isinstance(value, Mapping):
        return {visible(key): visible(one) for key, one in value.items()}
    return [visible(one) for one in value] if isinstance(value, list | tuple) else value


def bar(counts: Mapping[str, int]) -> Sequence[tuple[str, float, float]]:
    """Verdict, start and width, in percent, of each part of a bar."""
    total, start, parts = sum(counts.values()) or 1, 0.0, []
    for verdict, count in counts.items():
        if count:
            width = 100 * count / total
            parts.append((verdict, round(start, 3), round(width, 3)))
            start += width
    return parts


def _constraints(gathered: Gathered) -> dict[str, Any]:
    rows = [result.row for result in gathered.results if result.row.profile == "constraints"]
    return {
        "documented": DOCUMENTED,
        "head": constraints.HEAD,
        "cells": [*constraints.cells(rows, gathered.entries)],
        "gaps": [*constraints.gaps(rows, gathered.entries)],
    }


def goldens() -> list[tuple[str, int, int, int]]:
    """Of every pattern with stored goldens: how many, their elements, and how many of those lie at a tie."""
    counts: dict[str, list[int]] = {}
    manifest = json.loads((GOLDEN / "MANIFEST.json").read_text(encoding="utf-8"))["goldens"]
    for name, entry in manifest.items():
        one = counts.setdefault(name.partition("/")[0], [0, 0, 0])
        one[0] += 1
        one[1] += entry["elements"]
        one[2] += entry["ties"]
    return [(name, *numbers) for name, numbers in sorted(counts.items())]  # type: ignore[misc]


class Numbered:
    """Values in the order in which they come, each once."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def __iter__(self) -> Any:
        return iter(self._numbers)


def outcome(row: Row) -> tuple[str, frozenset[str]]:
    return row.verdict, row.failed


def differing(results: Iterable[Result]) -> set[str]:
    """The cases, by what is left of their ids without backend and engine, that came out differently somewhere."""
    seen: dict[str, set[tuple[str, frozenset[str]]]] = {}
    for result in results:
        if result.row.verdict != "unavailable":
            seen.setdefault(case(result.row), set()).add(outcome(result.row))
    return {name for name, outcomes in seen.items() if len(outcomes) > 1}


def case(row: Row) -> str:
    """The case of a run without its backend, so that backends compare."""
    return row.id.rpartition("@")[0].partition("/")[2]


def _data(gathered: Gathered, folder: Path) -> None:
    """Write index.js, and one script for each pattern."""
    columns, patterns, dtypes, flows, variants, profiles, entries = (Numbered() for _ in range(7))
    for column in gathered.columns:
        columns(column)
    differs = differing(gathered.results)
    runs: dict[str, list[int]] = {name: [] for name in FIELDS}
    chunks: dict[int, list[dict[str, Any]]] = {}
    for number, result in enumerate(progress(gathered.results, "runs")):
        row = result.row
        pattern = patterns(row.pattern)
        seen = result.details is not None
        values = (
            columns(result.column),
            pattern,
            dtypes(row.dtype_config),
            flows(row.flow),
            variants(row.variant),
            profiles(row.profile),
            VERDICTS.index(row.verdict),
            sum(1 << FAILURES.index(check) for check in row.failed),
            entries(result.held.entries[0].id) if result.held.entries else -1,
            NEW * result.new + DIFFERS * (case(row) in differs) + SEEN * seen,
        )
        for kept, value in zip(runs.values(), values, strict=True):
            kept.append(value)
        chunks.setdefault(pattern, []).append(_run(number, result))
    reasons = {entry.id: entry.reason for entry in gathered.entries}
    families = sorted({family(pattern) for pattern in patterns})
    index = {
        "columns": [
            {
                "backend": column.backend,
                "engine": column.engine,
                "platform": gathered.labels[column.environment],
            }
            for column in columns
        ],
        "patterns": [{"name": pattern, "family": families.index(family(pattern))} for pattern in patterns],
        "families": families,
        "dtypes": [*dtypes],
        "flows": [*flows],
        "variants": [*variants],
        "profiles": [*profiles],
        "verdicts": VERDICTS,
        "failures": FAILURES,
        "entries": [{"id": name, "reason": reasons[name]} for name in entries],
        "symbols": SYMBOLS,
        "runs": runs,
    }
    _script(folder / "index.js", "index", index)
    for pattern, found in chunks.items():
        text = json.dumps(visible(found), separators=(",", ":"))
        packed = gzip.compress(text.encode(), 6, mtime=0)
        _script(folder / f"{pattern}.js", "chunk", pattern, base64.b64encode(packed).decode())


def _script(path: Path, call: str, *arguments: Any) -> None:
    """A script that hands over values. All that is not ASCII is escaped, so that nothing ends a line or the script."""
    packed = ",".join(json.dumps(visible(one), separators=(",", ":")) for one in arguments)
    path.write_text(f"conformance.{call}({packed});\n", encoding="ascii")


def _run(number: int, result: Result) -> dict[str, Any]:
    """What is said of a run when it is opened."""
    row, details = result.row, result.details
    return {
        "number": number,
        "checks": row.checks,
        "detail": row.detail,
        "message": result.held.message,
        "entries": [
            {"id": entry.id, "reason": entry.reason, "upstream": entry.upstream, "link": findings.link(entry.upstream)}
            for entry in result.held.entries
        ],
        "kernels": row.kernels,
        "numbers": {
            "elements compared": row.total,
            "beyond the tolerance": row.mismatched,
            "the other side of a tie": row.ties,
            "within the tolerance": row.tolerated,
            "furthest off, in steps": row.steps_max,
            "SQNR in dB": row.sqnr_db,
            "seconds": row.seconds,
        },
        "sections": details.sections if details else None,
        "outputs": [asdict(output) for output in details.outputs] if details else [],
        "reproduction": details.reproduction if details else "",
    }
