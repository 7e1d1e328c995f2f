"""The support table: the status of every pattern and dtype config on every engine, platform and torch version."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.markdown import code, escaped
from conformance.markdown import table as markdown_table
from conformance.results.jsonl import replacing
from conformance.results.known import Entry, KnownFinding
from conformance.results.severity import Assessment, Severity
from conformance.results.status import STATUSES, Status, Support

from . import documents
from .findings import Shown, shown
from .load import Column, Report, Result, family, with_operator

RECORDED = Path(__file__).parent / "support.json"
"""The committed table, which `support` reads if it is given no rows."""
FORMS_SHOWN = 4
"""Maximum number of forms that are named for an exception."""


@dataclass(frozen=True)
class Cause:
    """A known finding of a cell: its id, how bad it is there, and the forms that show it, none in default use. Of many forms
    FORMS_SHOWN are named; `more` is the number of the others."""

    finding: str
    severity: Severity
    forms: tuple[str, ...] = ()
    more: int = 0

    @property
    def where(self) -> str:
        """The forms in words."""
        if not self.forms:
            return "in default use"
        return f"with {'; '.join(self.forms)}{f'; and {self.more} more' if self.more else ''}"


@dataclass(frozen=True)
class Cell:
    """The status of a claim on an engine in an environment, and the known findings that it shows, the worst first."""

    status: Status
    causes: tuple[Cause, ...]

    @property
    def text(self) -> str:
        return f"{self.status.symbol} {self.status.value}"


@dataclass(frozen=True)
class Place:
    """A column of the table."""

    backend: str
    engine: str
    platform: str
    torch: str

    @property
    def name(self) -> str:
        return f"{self.engine}, {self.platform}, torch {self.torch.partition('+')[0]}"


@dataclass(frozen=True)
class Table:
    """The cells by pattern, dtype config and place. A claim that a config does not make has no cell. `findings` are by
    id."""

    places: tuple[Place, ...]
    cells: Mapping[tuple[str, str], Mapping[Place, Cell]]
    findings: Mapping[str, KnownFinding]

    @property
    def families(self) -> dict[str, list[tuple[str, str]]]:
        """The rows of each family, sorted."""
        by_family: dict[str, list[tuple[str, str]]] = {}
        for row in sorted(self.cells):
            by_family.setdefault(family(row[0]), []).append(row)
        return dict(sorted(by_family.items()))

    def cause_numbers(self) -> dict[str, int]:
        """The number of the footnote of each finding, in the order in which the table names them."""
        numbers: dict[str, int] = {}
        for rows in self.families.values():
            for row in rows:
                for place in self.places:
                    for cause in self.cells[row][place].causes if place in self.cells[row] else ():
                        numbers.setdefault(cause.finding, len(numbers) + 1)
        return numbers


def table(report: Report) -> Table:
    """The support table of a report."""
    listed = shown(report)
    causes = _causes(listed)
    places = {
        column: Place(column.backend, column.engine, column.environment.platform, column.environment.torch)
        for column in report.statuses
    }
    cells: dict[tuple[str, str], dict[Place, Cell]] = {}
    for column, found in report.statuses.items():
        for claim, one in found.items():
            pattern, _, dtypes = claim.partition("/")[2].rpartition("/")
            shows = sorted(causes.get((column, claim), ()), key=_by_severity)
            cells.setdefault((pattern, dtypes), {})[places[column]] = Cell(one.status, tuple(shows))
    return Table(tuple(places.values()), cells, {one.finding.id: one.finding for one in listed})


def _causes(listed: Iterable[Shown]) -> dict[tuple[Column, str], list[Cause]]:
    """The known findings of each claim in each column, in order of importance."""
    found: dict[tuple[Column, str], list[Cause]] = {}
    for one in listed:
        runs: dict[tuple[Column, str], list[tuple[Assessment, Result]]] = {}
        for run in one.runs:
            runs.setdefault((run[1].column, run[1].row.claim), []).append(run)
        for place, members in runs.items():
            found.setdefault(place, []).append(_cause(one.finding.id, members))
    return found


def _cause(finding: str, runs: Sequence[tuple[Assessment, Result]]) -> Cause:
    by_default = [worst for worst, result in runs if not result.form]
    worst = min(by_default or [worst for worst, _ in runs])
    forms = [] if by_default else sorted({result.form for _, result in runs}, key=lambda form: (len(form), form))
    return Cause(finding, worst.severity, tuple(forms[:FORMS_SHOWN]), max(0, len(forms) - FORMS_SHOWN))


def _by_severity(cause: Cause) -> tuple[bool, int]:
    """Sort key: default use, then the worst."""
    return bool(cause.forms), [*Severity].index(cause.severity)


def json_text(made: Table) -> str:
    """The table as JSON, a line for each claim."""
    claims = []
    for (pattern, dtypes), by_place in sorted(made.cells.items()):
        cells = [
            {"place": made.places.index(place), "status": cell.status.value, "causes": [*map(vars, cell.causes)]}
            for place, cell in by_place.items()
        ]
        claim = {"pattern": pattern, "dtypes": dtypes, "family": family(pattern), "cells": cells}
        claims.append(json.dumps(claim, separators=(",", ":")))
    places = json.dumps([*map(vars, made.places)], indent=0)
    findings = json.dumps({name: finding.title for name, finding in sorted(made.findings.items())}, indent=0)
    lines = ",\n".join(claims)
    return f'{{"places": {places},\n"findings": {findings},\n"claims": [\n{lines}\n]}}\n'


def from_json(values: Mapping[str, Any], findings: Mapping[str, KnownFinding]) -> Table:
    """The table of JSON values. Raises UsageError for a finding that the ledger, `findings` by id, does not have."""
    places = tuple(Place(**place) for place in values["places"])
    if unknown := sorted(values["findings"].keys() - findings.keys()):
        raise UsageError(
            f"{RECORDED.name}: the ledger has no finding {unknown[0]!r}: write the table again from rows: "
            "python -m conformance support --write ROWS…"
        )
    by_value = {status.value: status for status in STATUSES}
    cells: dict[tuple[str, str], dict[Place, Cell]] = {}
    for claim in values["claims"]:
        by_place = cells.setdefault((claim["pattern"], claim["dtypes"]), {})
        for cell in claim["cells"]:
            causes = (
                Cause(cause["finding"], Severity(cause["severity"]), tuple(cause["forms"]), cause["more"])
                for cause in cell["causes"]
            )
            by_place[places[cell["place"]]] = Cell(by_value[cell["status"]], tuple(causes))
    return Table(places, cells, {name: findings[name] for name in values["findings"]})


def recorded(entries: Iterable[Entry], path: Path = RECORDED) -> Table:
    """The committed table. Raises UsageError if the ledger lacks one of its findings."""
    return from_json(json.loads(path.read_text(encoding="utf-8")), {entry.id: entry.finding for entry in entries})


def as_csv(made: Table) -> str:
    """The table as CSV: a line for each claim and place."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["pattern", "dtypes", "family", "config", "engine", "platform", "torch", "status", "findings"])
    for (pattern, dtypes), by_place in sorted(made.cells.items()):
        for place, cell in by_place.items():
            named = " ".join(cause.finding for cause in cell.causes)
            where = place.backend, place.engine, place.platform, place.torch
            writer.writerow([pattern, dtypes, family(pattern), *where, cell.status.value, named])
    return text.getvalue()


def headings(made: Table) -> tuple[list[str], str]:
    """The headings of the columns, and what they have in common, in words: the platform and torch, if it is one of each."""
    platforms = {(place.platform, place.torch) for place in made.places}
    if len(platforms) > 1:
        return [place.name for place in made.places], ""
    (place, *_) = made.places
    return [place.engine for place in made.places], f"{place.platform} with torch {place.torch.partition('+')[0]}"


def markdown(made: Table) -> list[str]:
    """The table in markdown: a table for each family, with a footnote for each finding."""
    numbers = made.cause_numbers()
    heads, common = headings(made)
    tables = {
        name: markdown_table(
            ["pattern", "dtypes", *map(escaped, heads)],
            (
                [code(row[0]), row[1], *(_cell_markdown(made.cells[row].get(place), numbers) for place in made.places)]
                for row in rows
            ),
        )
        for name, rows in made.families.items()
    }
    context = {"statuses": STATUSES, "common": common, "numbers": numbers, "findings": made.findings}
    return documents.lines("support.md", tables=tables, **context)


def _cell_markdown(cell: Cell | None, numbers: Mapping[str, int]) -> str:
    if cell is None:
        return ""
    notes = " ".join(f"[{numbers[cause.finding]}](#{cause.finding})" for cause in cell.causes)
    return f"{escaped(cell.text)} {notes}".rstrip()


def families_markdown(made: Table) -> Iterator[str]:
    """Yield the table of families for the README: of the claims of each family, how many work in default use."""
    heads, common = headings(made)
    rows = [[name, *_shares(made, rows)] for name, rows in made.families.items()]
    rows.append(["**all**", *_shares(made, made.cells)])
    rows.append(["**all, in every form**", *_shares(made, made.cells, lambda status: status is Support.WORKS)])
    yield from markdown_table(["family", *map(escaped, heads)], rows, range(1, len(heads) + 1))
    if common:
        yield ""
        yield f"On {escaped(common)}."


def _shares(
    made: Table,
    rows: Iterable[tuple[str, str]],
    works: Callable[[Status], bool] = lambda status: status.works_by_default,
) -> Iterator[str]:
    """Yield for each place how many of the claims that were executed there work; an empty text if none was."""
    rows = [*rows]
    for place in made.places:
        statuses = [made.cells[row][place].status for row in rows if place in made.cells[row]]
        executed = [status for status in statuses if status is not Support.UNAVAILABLE]
        yield f"{sum(map(works, executed))} of {len(executed)}" if executed else ""


def answer(made: Table, operator: str) -> Iterator[str]:
    """Yield lines for a terminal about one operator: its status in each place, with reasons. Raises UsageError if no pattern
    has it."""
    patterns = with_operator(operator, {pattern for pattern, _ in made.cells})
    for pattern, dtypes in (row for row in sorted(made.cells) if row[0] in patterns):
        yield f"{pattern}  {dtypes}"
        for place, cell in made.cells[pattern, dtypes].items():
            yield f"    {cell.status.symbol} {place.name}: {cell.status.phrase}"
            for cause in cell.causes:
                finding = made.findings[cause.finding]
                yield f"        {cause.severity.phrase} {cause.where}: {finding.title} ({finding.id})"


FORMATS: Mapping[str, Callable[[Table], str]] = {
    "markdown": lambda made: "\n".join(markdown(made)) + "\n",
    "json": json_text,
    "csv": as_csv,
}
"""Formats of the whole table."""

BEGIN, END = "<!-- support -->", "<!-- /support -->"
"""What the table of families is between in the README."""


def readme(text: str, made: Table) -> str:
    """The README with the table of families. Raises UsageError if it has no place for it."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise UsageError(f"README.md: write {BEGIN} and {END} where the table of families belongs")
    lines = "\n".join(families_markdown(made))
    return f"{before}{BEGIN}\n{lines}\n{END}{after}"


def write(made: Table, root: Path) -> Iterator[Path]:
    """Write the committed table, its page and the README's table, and yield their paths."""
    page, front = root / "docs" / "support.md", root / "README.md"
    texts = {
        RECORDED: json_text(made),
        page: FORMATS["markdown"](made),
        front: readme(front.read_text(encoding="utf-8"), made),
    }
    for path, text in texts.items():
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")
        yield path
