"""What an earlier rows file says of the runs of a selection: which failed, and how long each took."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from conformance.errors import UsageError

from .environments import environment
from .known import Coverage, Entry
from .ledger import judge
from .rows import Row, RowsFile, digest_of, read_all
from .verdicts import Verdict


@dataclass(frozen=True)
class Earlier:
    """An earlier rows file. A merged one says the same on every machine, because all its parts count.

    `failed` are the runs whose outcome the ledger did not expect, `seconds` the mean duration of each run that was executed.
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


def _failed(path: Path, part: RowsFile, backends: Collection[str], entries: tuple[Entry, ...]) -> Iterator[Row]:
    """Yield the rows of runs that failed. That a row deviates in more or fewer checks than its entry lists is not recorded:
    this the ledger says as it is now."""
    host = environment(path, part.header).host
    rows = [row for row in part.rows if row.backend in backends]
    coverage = Coverage(entries)
    for row in rows:
        if row.failed and row.known:
            expected = judge(row, coverage.of(row.id), host).expected
        else:
            # earlier versions said of a run without its golden that it conforms; it was not compared
            uncompared = row.verdict is Verdict.UNJUDGED or row.checks.get("numerics") == "skip"
            expected = not row.failed and not row.known and not uncompared
        if not expected:
            yield row
