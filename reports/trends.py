"""The trend of a history of rows: verdicts of each night, and what changed since the night before."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from conformance.markdown import escaped, plain, table
from conformance.results.verdicts import IN_ORDER, Verdict

from .columns import padded, width
from .nights import Filter, Night, loaded
from .rows_history import quoted

FAILING = f"verdict IN ({', '.join(quoted(verdict) for verdict in Verdict if verdict.fails)})"
"""The condition of SQL for rows that deviate or crash, without the name of their table."""
CONFORMS = quoted(Verdict.CONFORMS)


@dataclass(frozen=True)
class Changes:
    """Numbers of runs that changed since the night before, whose date and torch version these are.

    `newly_deviating` runs deviate or crash and did not, `newly_conforming` ones conform and did not; of the night before,
    `removed` runs are no longer there, `added` ones were not.
    """

    date: str
    torch: str
    newly_deviating: int
    newly_conforming: int
    added: int
    removed: int


CHANGED = tuple(field.name for field in fields(Changes))[2:]


@dataclass(frozen=True)
class Counts(Night):
    """Numbers of runs of a night: by verdict, and of those that deviate or crash the `known` and the `unexplained` ones.

    A known one names a finding of the ledger. `changes` is None for the first night.
    """

    runs: int
    revision: str
    verdicts: Mapping[str, int]
    known: int
    unexplained: int
    changes: Changes | None


QUERY = f"""
WITH counted AS (
    SELECT night, count(*) AS runs, arg_max(revision, finished) AS revision, histogram(verdict) AS verdicts,
        count(*) FILTER ({FAILING} AND known <> '') AS known, count(*) FILTER ({FAILING} AND known = '') AS unexplained
    FROM results GROUP BY night
), judged AS (
    SELECT night, id, {FAILING} AS fails, verdict = {CONFORMS} AS conforms FROM results
), earlier AS (
    SELECT nights.night, id, fails, conforms FROM nights JOIN judged ON judged.night = nights.before
), compared AS (
    SELECT night, count(*) FILTER (now.fails AND NOT old.fails) AS newly_deviating,
        count(*) FILTER (now.conforms AND NOT old.conforms) AS newly_conforming,
        count(*) FILTER (old.fails IS NULL) AS added, count(*) FILTER (now.fails IS NULL) AS removed
    FROM judged now FULL JOIN earlier old USING (night, id) GROUP BY night
)
SELECT nights.* EXCLUDE (night, before), counted.* EXCLUDE night, CASE WHEN nights.before IS NOT NULL THEN {{
    'date': old.date, 'torch': old.torch, 'newly_deviating': newly_deviating, 'newly_conforming': newly_conforming,
    'added': added, 'removed': removed
}} END AS changes
FROM nights JOIN counted USING (night) JOIN compared USING (night) LEFT JOIN nights old ON old.night = nights.before
ORDER BY nights.backend, nights.arch, nights.isa, nights.date, nights.torch
"""


def trend(history: str, wanted: Filter) -> list[Counts]:
    """The nights of a history, by backend, platform and date. Raises UsageError as `nights.loaded` does."""
    with loaded(history, wanted) as database:
        found = database.execute(QUERY)
        names = [name for name, *_ in found.description]
        nights = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    for night in nights:
        night["verdicts"] = {str(verdict): night["verdicts"].get(verdict, 0) for verdict in IN_ORDER}
        night["changes"] = night["changes"] and Changes(**night["changes"])
    return [Counts(**night) for night in nights]


TEXTS = 4
"""Columns of the table that are texts; the others are numbers."""


def _cells(counts: Counts) -> dict[str, str]:
    """The cells of a line by the titles of their columns."""
    cells: dict[str, object] = {
        "night": counts.date,
        "backend": counts.backend,
        "platform": counts.platform,
        "torch": counts.torch,
        "runs": counts.runs,
        **counts.verdicts,
        "known": counts.known,
        "unexplained": counts.unexplained,
        **{name.replace("_", " "): getattr(counts.changes, name, "–") for name in CHANGED},
    }
    return {title: str(cell) for title, cell in cells.items()}


def as_text(trend: Sequence[Counts]) -> Iterator[str]:
    """Yield lines for a terminal: titles, and a line for each night, in columns."""
    lines = [[*_cells(trend[0])], *([plain(cell) for cell in _cells(counts).values()] for counts in trend)]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = zip(line, widths, strict=True)
        yield "  ".join(padded(cell, columns, number >= TEXTS) for number, (cell, columns) in enumerate(cells))


def as_markdown(trend: Sequence[Counts]) -> Iterator[str]:
    """Yield lines of a table."""
    titles = [*_cells(trend[0])]
    rows = [map(escaped, _cells(counts).values()) for counts in trend]
    yield from table(titles, rows, range(TEXTS, len(titles)))


def as_json(trend: Sequence[Counts]) -> Iterator[str]:
    """Yield a JSON array of the nights."""
    yield json.dumps([asdict(counts) for counts in trend], indent=1)


FORMATS: Mapping[str, Callable[[Sequence[Counts]], Iterable[str]]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": as_json,
}
