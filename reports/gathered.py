"""Rows files put together: every run where it ran, held against the ledger, with what there is to see of it."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.paths import KNOWN
from conformance.results import diagnostics
from conformance.results.diagnostics import Details
from conformance.results.families import family_named
from conformance.results.ledger import Entry, Host, Verdict, judge, load, speaking
from conformance.results.profiles import CHECKS
from conformance.results.rows import VERDICTS, Row, RowsFile, read_all, worst

DISTINCT = ("torch", "cpu", "os", "python")
"""Fields of an environment that its label has only where they tell it from another one, the most telling first."""


LISTS = {"engines": dict, "backends": list, "selection": list, "not_asked_for": list, "cpu_flags": list}
"""Fields of a header that hold several values, which are shown one by one."""


@dataclass(frozen=True)
class Environment:
    """Where an invocation ran: the fields of its header that a run's outcome may depend on."""

    torch: str
    python: str
    os: str
    arch: str
    cpu: str
    isa: str

    @property
    def host(self) -> Host:
        return Host(self.torch, self.arch, self.isa)

    @property
    def platform(self) -> str:
        """Architecture and instruction set, each once."""
        return self.arch if self.arch == self.isa else f"{self.arch} {self.isa}"


def environment(path: Path, header: Mapping[str, Any]) -> Environment:
    """The environment of a header. Raises UsageError naming the file if a field is missing or no text."""
    values = {one.name: header.get(one.name) for one in fields(Environment)}
    for name, value in values.items():
        if not isinstance(value, str):
            raise UsageError(f"{path}: damaged: {name} of its header is {value!r}; run it again")
    for name, kind in LISTS.items():
        if not isinstance(header.get(name, kind()), kind):
            raise UsageError(f"{path}: damaged: {name} of its header is {header[name]!r}; run it again")
    return Environment(**values)  # type: ignore[arg-type]


def labels(environments: Iterable[Environment]) -> dict[Environment, str]:
    """A short name for each environment, with no more than what tells it from the others."""
    every = list(dict.fromkeys(environments))
    names = {one: [one.platform] for one in every}
    for name in DISTINCT:
        if len({tuple(words) for words in names.values()}) == len(every) and name != "torch":
            break
        if len({getattr(one, name) for one in every}) > 1:
            for one, words in names.items():
                value = getattr(one, name)
                words.append(f"torch {value.partition('+')[0]}" if name == "torch" else value)
    found = {one: ", ".join(words) for one, words in names.items()}
    if len(set(found.values())) == len(every):
        return found
    return {one: f"{found[one]} ({number})" for number, one in enumerate(every, 1)}


@dataclass(frozen=True)
class Part:
    """The rows of one invocation, with the file that they stand in."""

    path: Path
    file: RowsFile
    environment: Environment
    details: Mapping[str, Details]


@dataclass(frozen=True)
class Column:
    """A backend's config on an engine, somewhere."""

    backend: str
    engine: str
    environment: Environment

    @property
    def order(self) -> tuple[str, ...]:
        """Sorts by backend, engine and environment."""
        return self.backend, self.engine, *astuple(self.environment)

    @property
    def name(self) -> str:
        return self.engine if self.engine == self.backend else f"{self.engine} ({self.backend})"


@dataclass(frozen=True)
class Result:
    """One run somewhere, and how it stands with the ledger."""

    row: Row
    column: Column
    held: Verdict
    details: Details | None

    @property
    def new(self) -> bool:
        """Whether it is not as the ledger says."""
        return not self.held.expected


def parts_of(paths: Sequence[Path]) -> list[Part]:
    """Read rows files, merged or not, with their details.

    Raises UsageError naming the file that cannot be read, and for two files that have the same run on the same environment.
    """
    parts: list[Part] = []
    seen: dict[tuple[str, Environment], Path] = {}
    for path in paths:
        files = read_all(path)
        for file, found in zip(files, diagnostics.read(path, files), strict=True):
            where = environment(path, file.header)
            for row in file.rows:
                if (former := seen.get((row.id, where))) is not None:
                    raise UsageError(
                        f"{path}: duplicate: {row.id} stands in {former} too, from the same environment "
                        f"({where.platform}, torch {where.torch}): give one of them"
                    )
                seen[row.id, where] = path
            parts.append(Part(path, file, where, found))
    return parts


class Gathered:
    """Rows files with the ledger that they are held against."""

    def __init__(self, paths: Sequence[Path], ledgers: Sequence[Path] = (KNOWN,)) -> None:
        self.parts = parts_of(paths)
        self.ledgers = [load(folder) for folder in ledgers]
        self.labels = labels(part.environment for part in self.parts)

    @cached_property
    def entries(self) -> list[Entry]:
        """The entries of all ledgers, each once."""
        return list({entry.id: entry for ledger in reversed(self.ledgers) for entry in reversed(ledger)}.values())[::-1]

    def ledger_of(self, part: Part) -> tuple[Entry, ...]:
        """The ledger that an invocation was held against: the one that has what its rows name."""
        named = {row.known for row in part.file.rows}
        return max(self.ledgers, key=lambda ledger: sum(entry.id in named for entry in ledger))

    @cached_property
    def results(self) -> list[Result]:
        """Every run of every environment, in order of backend, engine, environment and id."""
        found: dict[Column, list[Result]] = {}
        for ledger in self.ledgers:
            parts = [part for part in self.parts if self.ledger_of(part) is ledger]
            about = speaking(ledger, {row.id for part in parts for row in part.file.rows})
            for part in parts:
                columns: dict[tuple[str, str], Column] = {}
                for row in part.file.rows:
                    named = row.backend, row.engine
                    column = columns.setdefault(named, Column(*named, part.environment))
                    held = judge(row, about.get(row.id, ()), part.environment.host)
                    found.setdefault(column, []).append(Result(row, column, held, part.details.get(row.id)))
        return [
            result
            for column in sorted(found, key=lambda column: column.order)
            for result in sorted(found[column], key=lambda result: result.row.id)
        ]

    @cached_property
    def columns(self) -> list[Column]:
        """Every backend on every engine and environment that has a row, in order."""
        return list(dict.fromkeys(result.column for result in self.results))

    @cached_property
    def new(self) -> list[Result]:
        """What is not as the ledger says."""
        return [result for result in self.results if result.new]

    @cached_property
    def standings(self) -> "dict[Column, Standing]":
        """How the claims of every column stand."""
        by_column: dict[Column, dict[str, list[Result]]] = {column: {} for column in self.columns}
        for result in self.results:
            by_column[result.column].setdefault(result.row.claim, []).append(result)
        return {column: standing(claims.values()) for column, claims in by_column.items()}


@dataclass(frozen=True)
class Standing:
    """How many claims are kept, deviate, crash and were not executed; of those that deviate how many in which check (in
    several, some), and how many runs there are and are not as the ledger says."""

    verdicts: Mapping[str, int]
    checks: Mapping[str, int]
    runs: int
    new: int

    @property
    def claims(self) -> int:
        return sum(self.verdicts.values())


def standing(claims: Iterable[Sequence[Result]]) -> Standing:
    """Count claims, each given by its runs."""
    claims = list(claims)
    of = [worst(result.row for result in runs) for runs in claims]
    verdicts = Counter(of)
    deviating = [runs for runs, verdict in zip(claims, of, strict=True) if verdict == "deviates"]
    checks = Counter(check for runs in deviating for check in frozenset().union(*(one.row.failed for one in runs)))
    return Standing(
        {verdict: verdicts[verdict] for verdict in VERDICTS},
        {check: checks[check] for check in CHECKS if checks[check]},
        sum(map(len, claims)),
        sum(result.new for runs in claims for result in runs),
    )


def family(pattern: str) -> str:
    """The family of a pattern, by the name of the operator that it begins with."""
    names = re.findall(r"[\w.]+", pattern.partition("+")[0])
    return family_named(names[-1] if names else pattern)
