"""The HTML report: a folder that opens from disk and loads nothing from elsewhere.

The outcomes of all runs are one script of columns, which the map filters. The diagnostics of runs are in one compressed
script for each pattern, loaded when a run is opened: a script, because a page opened from disk cannot fetch.
"""

import base64
import gzip
import json
import math
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment
from markupsafe import Markup, escape

from conformance.configs.engines import SUCCESSORS
from conformance.errors import UsageError, brief
from conformance.markdown import Visible
from conformance.paths import GOLDEN
from conformance.progress import progress
from conformance.reports import constraints
from conformance.results import migrations
from conformance.results.constraints import DOCUMENTED
from conformance.results.profiles import CHECKS
from conformance.results.reproductions import script_of
from conformance.results.rows import Row
from conformance.results.severity import Severity
from conformance.results.status import STATUSES
from conformance.results.use import Fate
from conformance.results.verdicts import AS_CHECKS, IN_ORDER, Verdict

from . import findings, migration, news, support, use
from .documents import environment, link
from .findings import Shown
from .load import Report, Result, family

T = TypeVar("T")
VISIBLE_LINES = Visible({ord("\n"): "\n", ord("\t"): " "})
"""As `markdown.VISIBLE`, with line ends kept."""
ESCAPE = re.compile(r"\\[bfrtu]")
"""What JSON has for a control character."""
HERE = Path(__file__).parent
TEXTURES = {"except": "dots", "wrong": "stripes", "crashes": "stripes"}
"""Patterns of parts of bars, which tell them apart without colour."""
FIRST_FINDINGS = 5
"""The number of findings on the first page."""
FIRST_NEWS = 15
"""The number of groups of new deviations on the first page."""
BARS = 17
"""The greatest number of bars of a histogram."""
MARK = "conformance-report"
"""Name of the file that identifies a folder as a report, which may be replaced."""
FAILURES = (*CHECKS, *AS_CHECKS)
FIELDS = ("column", "pattern", "dtype", "flow", "variant", "profile", "verdict", "failed", "known", "flags")
"""Columns of the map's data, all numbers."""
NEW, DIFFERS, DIAGNOSED = 1, 2, 4
"""Bits of a run's flags: the ledger does not expect its outcome, another column has another outcome, it has diagnostics."""
FATES = tuple(Fate)
"""What becomes of layers, in the order in which it is shown."""
OF_FINDINGS = (Fate.NEAR, Fate.WRONG, Fate.FLOAT, Fate.REFUSED)
"""Fates that a finding explains."""
PAGES = {
    "index": "Overview",
    "findings": "Findings",
    "networks": "Networks",
    "support": "Support",
    "constraints": "Constraints",
    "migration": "FX to PT2E",
    "environments": "Environments",
}


def write(report: Report, folder: Path) -> Path:
    """Write the report into a folder and return its first page. Replaces an earlier report.

    Raises UsageError for a folder with other content.
    """
    with page_folder(folder):
        shutil.rmtree(folder / "data", ignore_errors=True)
        (folder / "data").mkdir()
        _data(report, folder / "data")
        for name, text in pages(report).items():
            (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder / "index.html"


@contextmanager
def page_folder(folder: Path) -> Iterator[None]:
    """Prepare a folder for pages, with the assets that they load. Raises UsageError if it has other content or cannot be
    written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not (folder / MARK).exists():
            raise UsageError(f"-o {folder}: not empty, and no report: name another folder")
        (folder / MARK).write_text("This folder is a report: writing another report replaces it.\n")
        shutil.rmtree(folder / "assets", ignore_errors=True)
        shutil.copytree(HERE / "static", folder / "assets")
        shutil.copytree(HERE / "vendor", folder / "assets" / "vendor")
        yield
    except OSError as error:
        why = error.strerror or brief(error)  # a copy of several files has no error of its own
        raise UsageError(f"-o {folder}: {why}: name a folder that can be written") from error


def templates() -> Environment:
    """The environment of the templates of pages. Values are escaped, and control characters in them visible."""
    jinja = environment(autoescape=True, finalize=visible)
    jinja.filters |= {"codes": codes, "visible": visible}
    return jinja


def pages(report: Report) -> dict[str, str]:
    """The text of the pages by name."""
    jinja = templates()
    jinja.globals |= {"pages": PAGES, "bar": bar, "histogram": histogram, "script": script_of, "percent": use.percent}
    listed, shares, new = findings.shown(report), use.shares(report), news.groups(report)
    made = support.table(report, listed)
    contexts: dict[str, dict[str, Any]] = {
        "index": {
            "news": new,
            "shown_news": FIRST_NEWS,
            "textures": TEXTURES,
            "listed": listed[:FIRST_FINDINGS],
            "total": len(listed),
            "default_engine": use.DEFAULT,
            "crashes": sum(one.severity is Severity.CRASHES for one in listed),
            "statuses": STATUSES,
            "shares": shares,
            "fates": FATES,
        },
        "findings": {
            "news": new,
            "listed": listed,
            "groups": _groups(listed),
            "unseen": findings.unseen(report, listed),
            "severities": Severity,
            "bands": findings.Band,
            "networks": sorted({name for share in shares for name in share.networks}),
        },
        "networks": {"shares": shares, "fates": FATES, "of_findings": OF_FINDINGS},
        "support": {"table": made, "numbers": made.cause_numbers(), "statuses": STATUSES},
        "constraints": _constraints(report),
        "migration": _migration(report),
        "environments": {"goldens": goldens()},
    }
    return {
        name: jinja.get_template(f"{name}.html.j2").render(report=report, page=name, **context)
        for name, context in contexts.items()
    }


def _groups(listed: Sequence[Shown]) -> list[tuple[str, str, list[Shown]]]:
    """The findings in groups with a heading and what it means: those that layers of networks show, then the others."""
    used, others = ([one for one in listed if bool(one.layers) is shown] for shown in (True, False))
    alike = "Layers of public networks show them, with their own options and data like theirs."
    unlike = "No layer of the public networks shows them: they take other options, another way of configuring, or other data."
    groups = [("In layers of public networks", alike, used), ("Of other options and data", unlike, others)]
    return [group for group in groups if group[2]]


def codes(text: str) -> Markup:
    """Text with backticks rendered as code elements."""
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if number % 2 else escape(piece) for number, piece in enumerate(pieces)
    )


def visible(value: Any) -> Any:
    """A value whose texts have visible control characters, except line ends."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else value.translate(VISIBLE_LINES)
    if isinstance(value, Mapping):
        return {visible(key): visible(item) for key, item in value.items()}
    return [visible(item) for item in value] if isinstance(value, list | tuple) else value


def bar(counts: Mapping[T, int]) -> Sequence[tuple[T, float, float]]:
    """The parts of a bar: what each counts, and its start and width in percent."""
    total, start, parts = sum(counts.values()) or 1, 0.0, []
    for status, number in counts.items():
        if number:
            width = 100 * number / total
            parts.append((status, round(start, 3), round(width, 3)))
            start += width
    return parts


def histogram(result: Result) -> Sequence[tuple[str, int, float]]:
    """The errors of a run's codes as bars: the distance in steps, how many elements have it, and their share of the highest
    bar in percent. Empty for a run without codes that are off."""
    outputs = result.details.outputs if result.details else ()
    pairs = [pair for output in outputs if output.unit == "steps" for pair in output.histogram]
    if not pairs:
        return []
    offsets = [offset for offset, _ in pairs]
    least, most = math.floor(min(offsets)), math.ceil(max(offsets))
    width = max(1, math.ceil((max(offsets) - min(offsets) + 1) / BARS))
    counts: Counter[int] = Counter()
    for offset, number in pairs:
        counts[math.floor(offset / width)] += number
    highest, bars = max(counts.values()), []
    for number in range(min(counts), max(counts) + 1):
        low, high = max(number * width, least), min((number + 1) * width - 1, most)
        label = f"{low:+d}" if low == high else f"{low:+d} to {high:+d}"
        bars.append((label, counts[number], round(100 * counts[number] / highest, 1)))
    return bars


def _constraints(report: Report) -> dict[str, Any]:
    rows = [result.row for result in report.results]
    commands = {result.row.id: result.command for result in report.results}
    return {
        "documented": DOCUMENTED,
        "head": constraints.HEAD,
        "cells": [*constraints.cells(rows, report.entries)],
        "shown_entries": [*constraints.shown_entries(rows, report.entries, commands)],
    }


def _migration(report: Report) -> dict[str, Any]:
    """What became of the claims of the report's backends, as it was measured for this revision of the suite."""
    header, every = migrations.read(migration.RECORDED)
    items = migration.of_backends(every, {column.backend for column in report.columns})
    found = {one.outcome for one in items}
    return {
        "header": header,
        "families": migration.by_family(items),
        "places": migration.places(items),
        "outcomes": {one: migration.MEANINGS[one] for one in migrations.Outcome if one in found},
        "counts": Counter((one.claim.partition("/")[0], one.fx_engine, one.outcome) for one in items),
        "successors": SUCCESSORS,
        "apart": migration.apart,
    }


def goldens() -> list[tuple[str, int, int, int]]:
    """Every pattern with stored goldens: its name, the number of goldens, of elements, and of elements at a tie."""
    counts: dict[str, list[int]] = {}
    manifest = json.loads((GOLDEN / "MANIFEST.json").read_text(encoding="utf-8"))["goldens"]
    for name, entry in manifest.items():
        pattern_counts = counts.setdefault(name.partition("/")[0], [0, 0, 0])
        for index, number in enumerate((1, entry["elements"], entry["ties"])):
            pattern_counts[index] += number
    return [(name, *numbers) for name, numbers in sorted(counts.items())]  # type: ignore[misc]


def numbers() -> defaultdict[Any, int]:
    """The numbers of distinct values, in order of appearance."""
    return defaultdict(count().__next__)


def differing(results: Iterable[Result]) -> set[str]:
    """Cases, as `case` names them, with more than one outcome among backends, engines and environments."""
    outcomes_of: dict[str, set[tuple[Verdict, frozenset[str]]]] = {}
    for result in results:
        if result.row.verdict.executed:
            outcomes_of.setdefault(case(result.row), set()).add((result.row.verdict, result.row.failed))
    return {name for name, outcomes in outcomes_of.items() if len(outcomes) > 1}


def case(row: Row) -> str:
    """The id of a run without backend and engine, which is equal for the same case of several backends."""
    return row.id.rpartition("@")[0].partition("/")[2]


def _data(report: Report, folder: Path) -> None:
    """Write index.js, and one script for each pattern."""
    columns = {column: number for number, column in enumerate(report.columns)}
    patterns, dtypes, flows, variants, profiles, entries = (numbers() for _ in range(6))
    differs = differing(report.results)
    runs: dict[str, list[int]] = {name: [] for name in FIELDS}
    chunks: dict[int, list[dict[str, Any]]] = {}
    for number, result in enumerate(progress(report.results, "runs")):
        row = result.row
        pattern = patterns[row.pattern]
        has_details = result.details is not None
        values = (
            columns[result.column],
            pattern,
            dtypes[row.dtype_config],
            flows[row.flow],
            variants[row.variant],
            profiles[row.profile],
            IN_ORDER.index(row.verdict),
            sum(1 << FAILURES.index(check) for check in row.failed),
            entries[result.expectation.entries[0].id] if result.expectation.entries else -1,
            NEW * result.new + DIFFERS * (case(row) in differs) + DIAGNOSED * has_details,
        )
        for column_values, value in zip(runs.values(), values, strict=True):
            column_values.append(value)
        chunks.setdefault(pattern, []).append(_run(number, result))
    titles = {finding.id: finding.title for finding in report.findings}
    families = sorted({family(pattern) for pattern in patterns})
    index = {
        "columns": [
            {"backend": column.backend, "engine": column.engine, "platform": report.labels[column.environment]}
            for column in columns
        ],
        "patterns": [{"name": pattern, "family": families.index(family(pattern))} for pattern in patterns],
        "families": families,
        "dtypes": [*dtypes],
        "flows": [*flows],
        "variants": [*variants],
        "profiles": [*profiles],
        "verdicts": IN_ORDER,
        "failures": FAILURES,
        "entries": [{"id": name, "reason": titles[name]} for name in entries],
        "symbols": {verdict: verdict.symbol for verdict in IN_ORDER},
        "runs": runs,
    }
    _script(folder / "index.js", "index", index)
    for pattern, pattern_runs in chunks.items():
        packed = gzip.compress(_json(pattern_runs).encode(), 6, mtime=0)
        _script(folder / f"{pattern}.js", "chunk", pattern, base64.b64encode(packed).decode())


def _json(value: Any) -> str:
    """JSON of a value whose texts are made visible. Most have nothing to make visible, which their JSON as a whole tells."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if ESCAPE.search(text) is None and text.translate(VISIBLE_LINES) == text:
        return text
    return json.dumps(visible(value), separators=(",", ":"), ensure_ascii=False)


def _script(path: Path, call: str, *arguments: Any) -> None:
    """Write a script that calls a function. Non-ASCII characters are escaped, so that no value ends a line or the script."""
    packed = ",".join(json.dumps(visible(argument), separators=(",", ":")) for argument in arguments)
    path.write_text(f"conformance.{call}({packed});\n", encoding="ascii")


def _run(number: int, result: Result) -> dict[str, Any]:
    """The data of a run that are shown when it is opened."""
    row, details = result.row, result.details
    return {
        "number": number,
        "command": result.command,
        "checks": row.checks,
        "detail": row.detail,
        "message": result.expectation.message,
        "entries": [
            {
                "id": known.id,
                "title": known.title,
                "reason": known.reason,
                "upstream": known.upstream,
                "link": link(known.upstream),
            }
            for known in {entry.id: entry.finding for entry in result.expectation.entries}.values()
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
        "outputs": [vars(output) for output in details.outputs] if details else [],
        "reproduction": details.reproduction if details else "",
    }
