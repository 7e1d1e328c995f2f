"""What an earlier rows file says of the runs of a selection: which failed, and how long each took."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from conformance.errors import UsageError

from .environments import environment
from .ledger import Entry, entries_by_run, judge
from .rows import Row, RowsFile, digest_of, read_all


@dataclass(frozen=True)
class Earlier:
    """An earlier rows file. Of a merged one every part counts, so that what it says is the same on every machine.

    `failed` are the runs that the ledger did not expect, or would not expect now, `seconds` the mean duration of each run
    that was executed.
    """

    path: Path
    digest: str
    ids: frozenset[str]
    failed: frozenset[str]
    seconds: Mapping[str, float]


def read_earlier(path: Path, backends: Collection[str], entries: Iterable[Entry]) -> Earlier:
    """Read the rows of these backends. Raises UsageError for a file that cannot be used, or that has none of them."""
    if not path.is_file():
        raise UsageError(f"--since {path}: no such file: name the rows file of an earlier invocation")
    try:
        parts = read_all(path)
        failed = {row.id for part in parts for row in _failed(path, part, backends, tuple(entries))}
    except UsageError as error:
        raise UsageError(f"--since {error}") from error
    rows = [row for part in parts for row in part.rows if row.backend in backends]
    if not rows:
        raise UsageError(f"--since {path}: it has no run of {', '.join(backends)}: name a rows file that has")
    durations: dict[str, list[float]] = {}
    for row in rows:
        if row.verdict.executed:
            durations.setdefault(row.id, []).append(row.seconds)
    return Earlier(
        path,
        digest_of("".join(part.text for part in parts)),
        frozenset(row.id for row in rows),
        frozenset(failed),
        {run_id: fmean(seconds) for run_id, seconds in durations.items()},
    )


def _failed(path: Path, part: RowsFile, backends: Collection[str], entries: tuple[Entry, ...]) -> list[Row]:
    """The rows that were not expected when they were recorded, as far as rows say, or that the ledger does not expect now."""
    host = environment(path, part.header).host
    rows = [row for row in part.rows if row.backend in backends]
    entries_of_run = entries_by_run(entries, [row.id for row in rows])
    return [
        row
        for row in rows
        if row.verdict.executed
        and (
            bool(row.failed) != (row.known is not None) or not judge(row, entries_of_run.get(row.id, ()), host).expected
        )
    ]
