"""The nights of a history of rows, and the night before each.

A night is the rows of one date, torch version, architecture, instruction set and backend. The night before it is the last one
on the same platform with the same torch; before the first night with a torch version, it is the last one with another.
A series is a night that is before no other, with all nights before it. Its torch, processor and revision may change.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import duckdb

from conformance.errors import UsageError
from conformance.suggestions import did_you_mean, unknown

from .rows_history import connected, has_files, table

FILTERED = ("backend", "engine", "arch")
"""Columns that are filtered by their values."""
NEAREST = 50
"""Ids that a suggestion is chosen from, the most similar: a history has too many to compare each part by part."""
WILDCARDS = "*?["


@dataclass(frozen=True)
class Filter:
    """The rows of a history that are read: of these backends, engines and architectures, with ids that match a glob, from one
    date to another, each in ISO 8601. What is empty or None excludes nothing."""

    backend: Sequence[str] = ()
    engine: Sequence[str] = ()
    arch: Sequence[str] = ()
    globs: Sequence[str] = ()
    first: str | None = None
    last: str | None = None


@dataclass(frozen=True)
class Night:
    """The rows of a backend that were recorded on one date, with one version of torch, on one platform."""

    date: str
    torch: str
    arch: str
    isa: str
    backend: str

    @property
    def platform(self) -> str:
        return platform(self.arch, self.isa)


def platform(arch: str, isa: str) -> str:
    """Architecture and instruction set, each once."""
    return arch if arch == isa else f"{arch} {isa}"


KEYS = ", ".join(field.name for field in fields(Night))
NIGHTS = f"""
CREATE TEMP TABLE nights AS
WITH dated AS (
    SELECT row_number() OVER (ORDER BY {KEYS}) - 1 AS night, *, regexp_extract_all(torch, '\\d+')::DOUBLE[] AS version
    FROM (SELECT DISTINCT {KEYS} FROM found)
)
SELECT own.* EXCLUDE version, first(other.night ORDER BY other.torch = own.torch DESC, other.date DESC,
    other.version <= own.version DESC, other.version DESC, other.torch) AS before
FROM dated own LEFT JOIN dated other
    ON other.date < own.date AND (other.arch, other.isa, other.backend) = (own.arch, own.isa, own.backend)
GROUP BY ALL;
CREATE TEMP TABLE series AS
WITH RECURSIVE members AS (
    SELECT night AS series, night, before FROM nights ANTI JOIN nights later ON later.before = nights.night
    UNION ALL SELECT series, nights.night, nights.before FROM members JOIN nights ON nights.night = members.before
)
SELECT series, night FROM members
"""
"""Creates the table `nights` of the nights in the table `found`, each with the number of the night `before` it, and the table
`series` of the nights of each series, which has the number of its last night."""


@contextmanager
def loaded(history: str, wanted: Filter) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with rows of a history.

    Its table `results` has a row for each run of each night: of several invocations the last counts. Its column `night` is
    that of the tables `nights` and `series`. Raises UsageError for a history that is missing or damaged, and for values and
    globs that match none of its rows.
    """
    with connected(history) as database:
        if not has_files(database, history):
            raise UsageError(
                f"{history}: no history of rows: `python -m conformance store ROWS… --history {history}` begins one"
            )
        database.execute(f"CREATE TEMP VIEW stored AS FROM {table(history)}")
        conditions, values = _conditions(database, wanted)
        database.execute(
            f"CREATE TEMP TABLE found AS SELECT {KEYS}, id, verdict, failed, known, cpu, revision, finished "
            f"FROM stored WHERE {conditions} "
            f"QUALIFY row_number() OVER (PARTITION BY date, torch, arch, isa, id ORDER BY finished DESC) = 1",
            values,
        )
        if not database.execute("SELECT 1 FROM found LIMIT 1").fetchone():
            raise UsageError(f"{history}: {_why_none(database, wanted)}")
        database.execute(NIGHTS)
        database.execute(
            "CREATE TEMP TABLE results AS SELECT night, id, verdict, failed, known, cpu, revision, finished "
            f"FROM found JOIN nights USING ({KEYS})"
        )
        yield database


def _conditions(database: duckdb.DuckDBPyConnection, wanted: Filter) -> tuple[str, list[Any]]:
    """The condition of SQL for the rows that are read, and its values. Raises UsageError for an unknown backend, engine or
    architecture."""
    conditions = ["TRUE"]
    values: list[Any] = []
    for column in FILTERED:
        if names := [*getattr(wanted, column)]:
            known = [
                name for (name,) in database.execute(f"SELECT DISTINCT {column} FROM stored ORDER BY 1").fetchall()
            ]
            for name in names:
                if name not in known:
                    raise unknown(column, name, known)
            conditions.append(f"list_contains(?, {column})")
            values.append(names)
    if wanted.globs:
        conditions.append(f"({' OR '.join(_matching(database, glob) for glob in wanted.globs)})")
        values += wanted.globs
    for relation, date in ((">=", wanted.first), ("<=", wanted.last)):
        if date:
            conditions.append(f"date {relation} ?")
            values.append(date)
    return " AND ".join(conditions), values


def _matching(database: duckdb.DuckDBPyConnection, glob: str) -> str:
    """The condition for ids that match a glob. An id takes precedence, because patterns may contain an asterisk."""
    is_glob = any(character in glob for character in WILDCARDS)
    return "id GLOB ?" if is_glob and not _any(database, "id = ?", glob) else "id = ?"


def _any(database: duckdb.DuckDBPyConnection, condition: str, value: str) -> bool:
    """Whether any row of the history fulfils a condition."""
    return database.execute(f"SELECT 1 FROM stored WHERE {condition} LIMIT 1", [value]).fetchone() is not None


def _why_none(database: duckdb.DuckDBPyConnection, wanted: Filter) -> str:
    """Why a filter matches no row, with the ids nearest to a glob without matches, or the dates that there are."""
    for glob in wanted.globs:
        if not _any(database, _matching(database, glob), glob):
            nearest = f"ORDER BY jaro_winkler_similarity(id, ?) DESC, id LIMIT {NEAREST}"
            similar = database.execute(f"SELECT id FROM (SELECT DISTINCT id FROM stored) {nearest}", [glob]).fetchall()
            suggestion = did_you_mean(glob, [name for (name,) in similar], cutoff=0.5)
            return f"no run matches {glob!r}" + (f": {suggestion}?" if suggestion else "")
    dates = database.execute("SELECT min(date), max(date) FROM stored").fetchone() or ()
    return f"no such rows in these nights: it has nights from {' to '.join(dates)}"
