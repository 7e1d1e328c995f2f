"""Rows files loaded for a report: every run by environment, compared with the ledger, with its diagnostics."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import cache, cached_property
from pathlib import Path

from conformance.configs.spelling import root_named
from conformance.errors import UsageError
from conformance.paths import KNOWN
from conformance.results.diagnostics import Details
from conformance.results.environments import Environment
from conformance.results.families import family_named
from conformance.results.known import Coverage, Entry, KnownFinding, entries_by_finding
from conformance.results.ledger import Expectation, judge_recorded
from conformance.results.ledger_file import load
from conformance.results.profiles import profile_names
from conformance.results.rows import Row, repro_command
from conformance.results.status import ClaimStatus, Tally, form_of, is_default_use, statuses, tally
from conformance.results.use import OF_LAYERS, Use, use_of
from conformance.suggestions import did_you_mean

from .parts import Part, parts_of

NETWORKS = profile_names("network")
"""Profiles of rows of networks, whose causes are recorded in the rows."""

DISTINCT = ("torch", "packages", "cpu", "os", "python")
"""Fields that appear in an environment's label only if they distinguish it from another one, the most telling first."""


def labels(environments: Iterable[Environment]) -> dict[Environment, str]:
    """A label for each environment, with only the fields that distinguish it from the others."""
    distinct = list(dict.fromkeys(environments))
    label_parts = {environment: [environment.platform] for environment in distinct}
    for name in DISTINCT:
        if len(set(map(tuple, label_parts.values()))) == len(distinct) and name != "torch":
            break
        if len({getattr(environment, name) for environment in distinct}) > 1:
            for environment, texts in label_parts.items():
                value = getattr(environment, name)
                texts.append(_shown(name, value))
    joined = {environment: ", ".join(texts) for environment, texts in label_parts.items()}
    if len(set(joined.values())) == len(distinct):
        return joined
    return {environment: f"{joined[environment]} ({number})" for number, environment in enumerate(distinct, 1)}


def _shown(name: str, value: str | tuple[str, ...]) -> str:
    """A field of an environment as part of its label."""
    if isinstance(value, tuple):
        return ", ".join(value) or "no further package"
    return f"torch {value.partition('+')[0]}" if name == "torch" else value


@dataclass(frozen=True)
class Column:
    """A backend's config on an engine in an environment."""

    backend: str
    engine: str
    environment: Environment

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Sort key: backend, engine, environment."""
        return self.backend, self.engine, *astuple(self.environment)

    @property
    def name(self) -> str:
        return self.engine if self.engine == self.backend else f"{self.engine} ({self.backend}'s config)"


@dataclass(frozen=True)
class Result:
    """One run in an environment, compared with the ledger."""

    row: Row
    column: Column
    expectation: Expectation
    details: Details | None
    options: tuple[str, ...] = ()
    isa_limit: str | None = None

    @property
    def command(self) -> str:
        """The command that prints the reproduction of the run, with the options that name what is not the suite's."""
        return repro_command(self.row.id, [*self.options, *(["--isa", self.isa_limit] if self.isa_limit else [])])

    @property
    def new(self) -> bool:
        """Whether the ledger does not expect this outcome."""
        return not self.expectation.expected

    @property
    def form(self) -> str:
        """What distinguishes the run from default use; empty in default use."""
        return "" if is_default_use(self.row) else form_of(self.row)

    @property
    def message(self) -> str:
        """How the outcome differs from the ledger, or else the row's detail."""
        return self.expectation.message or self.row.detail


class Report:
    """Rows files and the ledgers that they are compared with."""

    def __init__(self, paths: Sequence[Path], ledgers: Sequence[Path] = (KNOWN,)) -> None:
        self.parts = parts_of(paths)
        self.ledgers = [load(folder) for folder in ledgers]
        self.labels = labels(part.environment for part in self.parts)

    @cached_property
    def entries(self) -> list[Entry]:
        """The entries of all ledgers. Of a finding that several of them have, those of the first."""
        by_finding: dict[str, list[Entry]] = {}
        for ledger in self.ledgers:
            for name, entries in entries_by_finding(ledger).items():
                by_finding.setdefault(name, entries)
        return list({id(entry): entry for entries in by_finding.values() for entry in entries}.values())

    @cached_property
    def findings(self) -> list[KnownFinding]:
        """The findings of all ledgers."""
        return list({entry.id: entry.finding for entry in self.entries}.values())

    def ledger_of(self, part: Part) -> tuple[Entry, ...]:
        """The ledger that an invocation was compared with: the one with most of the entries that its rows name."""
        named = {row.known for row in part.file.rows}
        return max(self.ledgers, key=lambda ledger: len(named & entries_by_finding(ledger).keys()))

    @cached_property
    def results(self) -> list[Result]:
        """Every run in every environment, sorted by backend, engine, environment and id."""
        by_column: dict[Column, list[Result]] = {}
        for ledger in self.ledgers:
            parts = [part for part in self.parts if self.ledger_of(part) is ledger]
            entries_of_run = cache(Coverage(ledger).of)
            by_id = entries_by_finding(ledger)
            for part in parts:
                columns: dict[tuple[str, str], Column] = {}
                header = part.file.header
                options = tuple(header.get("options", ()))
                for row in part.file.rows:
                    named = row.backend, row.engine
                    column = columns.setdefault(named, Column(*named, part.environment))
                    entries = ledger if row.profile in NETWORKS else entries_of_run(row.id)
                    expectation = judge_recorded(row, entries, by_id, part.environment.host)
                    details = part.details.get(row.id)
                    result = Result(row, column, expectation, details, options, header.get("isa_limit"))
                    by_column.setdefault(column, []).append(result)
        return [
            result
            for column in sorted(by_column, key=lambda column: column.order)
            for result in sorted(by_column[column], key=lambda result: result.row.id)
        ]

    @cached_property
    def columns(self) -> list[Column]:
        """Every combination of backend, engine and environment that has a row, sorted."""
        return list(dict.fromkeys(result.column for result in self.results))

    @cached_property
    def new(self) -> list[Result]:
        """The runs whose outcome the ledger does not expect."""
        return [result for result in self.results if result.new]

    @cached_property
    def rows(self) -> dict[Column, list[Row]]:
        """The rows of every column that are of claims. Those of networks are of none."""
        by_column: dict[Column, list[Row]] = {}
        for result in self.results:
            if result.row.profile not in NETWORKS:
                by_column.setdefault(result.column, []).append(result.row)
        return by_column

    @cached_property
    def statuses(self) -> dict[Column, dict[str, ClaimStatus]]:
        """The status of every claim of every column."""
        return {column: statuses(rows) for column, rows in self.rows.items()}

    @cached_property
    def tallies(self) -> dict[Column, Tally]:
        """Counts of the claims of every column."""
        return {column: tally(found.values()) for column, found in self.statuses.items()}

    @cached_property
    def uses(self) -> dict[Column, Use]:
        """What becomes of the layers of networks in every column with runs of them."""
        return {
            column: use_of(rows) for column, rows in self.rows.items() if any(row.profile in OF_LAYERS for row in rows)
        }

    @cached_property
    def new_by_column(self) -> Counter[Column]:
        """The number of runs whose outcome the ledger does not expect."""
        return Counter(result.column for result in self.new)


def with_operator(operator: str, patterns: Iterable[str]) -> set[str]:
    """The pattern of that name, or those that have an operator. Raises UsageError, with the nearest names, if none has it."""
    operators = {pattern: re.findall(r"[\w.]+", pattern) for pattern in patterns}
    found = {pattern for pattern, names in operators.items() if operator in names or pattern == operator}
    if not found:
        suggestion = did_you_mean(operator, {*operators, *(name for names in operators.values() for name in names)})
        raise UsageError(f"{operator}: no pattern of these configs has it{suggestion and f'; {suggestion}?'}")
    return found


def family(pattern: str) -> str:
    """The family of a pattern's root operator."""
    return family_named(root_named(pattern))
