"""The support table: the status of every pattern and dtype config on every engine, platform and torch version."""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.markdown import code, escaped
from conformance.markdown import table as markdown_table
from conformance.results.in_use import occurrences_by_pattern
from conformance.results.known import Entry, KnownFinding
from conformance.results.severity import Assessment, Severity
from conformance.results.status import STATUSES, Status, Support, is_corner
from conformance.results.use import Use, mapped_of

from . import documents, use
from .findings import Shown, shown
from .load import Column, Report, Result, family, with_operator

RECORDED = Path(__file__).parent / "support.json"
"""The committed table, which `support` reads if it is given no rows."""
FORMS_SHOWN = 4
"""Maximum number of forms that are named for an exception."""


class Level(StrEnum):
    """What an exception amounts to. Members are in order, the worst first."""

    NUMBERS = "numbers"
    REFUSES = "refuses or float"
    CORNER = "corner"


@dataclass(frozen=True)
class Cause:
    """A known finding of a cell: its id, how bad it is there, and the forms that show it, none in default use. Of many forms
    FORMS_SHOWN are named, those of most layers in use first; `more` is the number of the others. It is a `corner` if all of
    them are. `layers` of the networks in use show it."""

    finding: str
    severity: Severity
    forms: tuple[str, ...] = ()
    more: int = 0
    corner: bool = False
    layers: int = 0

    @property
    def level(self) -> Level:
        """What it amounts to."""
        if self.corner or self.severity in (Severity.ACCEPTS, Severity.IDLE):
            return Level.CORNER
        return Level.REFUSES if self.severity in (Severity.REFUSES, Severity.FLOAT) else Level.NUMBERS

    @property
    def option(self) -> str:
        """The form that most layers have, as a cell spells it."""
        return self.forms[0] if self.forms else "default use"

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
    def crashes(self) -> bool:
        """Whether the process ends, or memory is corrupted, under some option."""
        return any(cause.severity is Severity.CRASHES for cause in self.causes)

    @property
    def text(self) -> str:
        return f"{self.status.symbol} {self.status.value}"

    @property
    def levels(self) -> dict[Level, list[Cause]]:
        """The findings by what they amount to, the worst first, and of each level those that most layers show."""
        ordered = sorted(self.causes, key=lambda one: -one.layers)
        found = {level: [one for one in ordered if one.level is level] for level in Level}
        return {level: causes for level, causes in found.items() if causes}


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

    @cached_property
    def layers(self) -> Mapping[tuple[str, str], int]:
        """How many layers of the networks in use have each pattern, with the dtypes that a default mapping asks for."""
        claimed: dict[Place, dict[str, set[str]]] = {place: {} for place in self.places}
        for (pattern, dtypes), by_place in self.cells.items():
            for place in by_place:
                claimed[place].setdefault(pattern, set()).add(dtypes)
        occurrences = occurrences_by_pattern()
        return {
            (pattern, dtypes): occurrences[pattern]
            for place, of in claimed.items()
            for pattern, dtypes in mapped_of(of, place.engine).items()
        }

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


def table(report: Report, listed: Sequence[Shown] | None = None) -> Table:
    """The support table of a report. `listed` are the findings that it shows, if they are known already."""
    listed = shown(report) if listed is None else listed
    causes = _causes(listed, report.uses)
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


def _causes(listed: Iterable[Shown], uses: Mapping[Column, Use]) -> dict[tuple[Column, str], list[Cause]]:
    """The known findings of each claim in each column, in order of importance."""
    found: dict[tuple[Column, str], list[Cause]] = {}
    for one in listed:
        runs: dict[tuple[Column, str], list[tuple[Assessment, Result]]] = {}
        for run in one.runs:
            runs.setdefault((run[1].column, run[1].row.claim), []).append(run)
        for place, members in runs.items():
            found.setdefault(place, []).append(_cause(one.finding.id, members, uses.get(place[0])))
    return found


def _cause(finding: str, runs: Sequence[tuple[Assessment, Result]], use: Use | None) -> Cause:
    by_default = [worst for worst, result in runs if not result.form]
    worst = min(by_default or [worst for worst, _ in runs])
    (row, *_) = (result.row for _, result in runs)
    mapped = use if use is not None and use.dtypes.get(row.pattern) == row.dtype_config else None
    layers = mapped.by_pattern.get((row.pattern, finding), 0) if mapped else 0
    if by_default:
        return Cause(finding, worst.severity, layers=layers)
    in_use: Counter[str] = Counter()
    for _, result in runs:
        in_use[result.form] += mapped.by_variant.get((row.pattern, result.row.variant), 0) if mapped else 0
    as_bad = {result.form for one, result in runs if one.severity is worst.severity}
    forms = sorted(in_use, key=lambda form: (form not in as_bad, is_corner(form), -in_use[form], len(form), form))
    corner = all(is_corner(form) for form in as_bad)
    return Cause(finding, worst.severity, tuple(forms[:FORMS_SHOWN]), max(0, len(forms) - FORMS_SHOWN), corner, layers)


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
                Cause(**{**cause, "severity": Severity(cause["severity"]), "forms": tuple(cause["forms"])})
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
    heads, _ = headings(made)
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
    context = {
        "families": families_markdown(made),
        "statuses": STATUSES,
        "numbers": numbers,
        "findings": made.findings,
    }
    return documents.lines("support.md", tables=tables, **context)


def _cell_markdown(cell: Cell | None, numbers: Mapping[str, int]) -> str:
    if cell is None:
        return ""
    parts = []
    for level, causes in cell.levels.items():
        worst = min(causes, key=lambda one: [*Severity].index(one.severity))
        notes = " ".join(f"[{numbers[cause.finding]}](#{cause.finding})" for cause in causes)
        parts.append(f"{'corner' if level is Level.CORNER else worst.severity.symbol} {notes}")
    return " ".join([cell.status.symbol if cell.status is Support.EXCEPT else escaped(cell.text), *parts])


def families_markdown(made: Table) -> Iterator[str]:
    """Yield the table of families: of the claims of each, how many work in default use."""
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
        layers = made.layers.get((pattern, dtypes), 0)
        used = f"  ({documents.count(layers, 'layer')} of networks)" if layers else ""
        yield f"{pattern}  {dtypes}{used}"
        for place, cell in made.cells[pattern, dtypes].items():
            yield f"    {cell.status.symbol} {place.name}: {cell.status.phrase}"
            for cause in (cause for causes in cell.levels.values() for cause in causes):
                title = made.findings[cause.finding].title
                showing = f", {cause.layers} of the layers" if cause.layers else ""
                yield f"        {cause.severity.phrase} {cause.where}{showing}: {title} ({cause.finding})"


FORMATS: Mapping[str, Callable[[Table], str]] = {
    "markdown": lambda made: "\n".join(markdown(made)) + "\n",
    "json": json_text,
    "csv": as_csv,
}
"""Formats of the whole table."""


def claims(made: Table) -> use.Claims:
    """Of the claims of each engine, how many work in default use, and in every form."""
    by_default = _shares(made, made.cells)
    in_every_form = _shares(made, made.cells, lambda status: status is Support.WORKS)
    return {
        (place.engine, place.platform, place.torch.partition("+")[0]): dict(zip(use.CLAIMED, counts, strict=True))
        for place, *counts in zip(made.places, by_default, in_every_form, strict=True)
    }


def write(made: Table, root: Path) -> Iterator[Path]:
    """Write the committed table, its page and the README's tables, and yield their paths."""
    page, front = root / "docs" / "support.md", root / "README.md"
    texts = {
        RECORDED: json_text(made),
        page: FORMATS["markdown"](made),
        front: use.readme(front.read_text(encoding="utf-8"), use.recorded(), claims(made)),
    }
    return documents.written(texts)
