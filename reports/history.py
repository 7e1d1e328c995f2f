"""History of timings: a Parquet file for each file of timings, queried with DuckDB, and lasting changes of cases.

Change points are found by Apache Otava (Hunt: Fleming et al. 2023; E-divisive means: Matteson and James 2014), which
considers a whole series, so that one noisy night is not a change.
"""

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import duckdb
from otava.analysis import compute_change_points

from conformance.bench.results import AIM, TimingsFile
from conformance.bench.timings import Memory, Timing, case_seconds, log_ratios
from conformance.errors import UsageError, brief
from conformance.markdown import code, plain
from conformance.results.jsonl import replacing

from .revisions import commits
from .rows_history import quoted

WINDOW = 30
"""Size of the window of nights in which a change point is tested."""
P_VALUE = 0.001
SUSTAINED = 3
"""Number of nights after a change until it causes an alert."""
MEMORY = tuple(field.name for field in fields(Memory))
COLUMNS = {
    "case_name": "VARCHAR",
    "finished": "TIMESTAMP",
    "revision": "VARCHAR",
    "torch": "VARCHAR",
    "arch": "VARCHAR",
    "cpu": "VARCHAR",
    "isa": "VARCHAR",
    "cores": "INTEGER",
    "ratio": "DOUBLE",
    "low": "DOUBLE",
    "high": "DOUBLE",
    "quantized_seconds": "DOUBLE",
    "float_seconds": "DOUBLE",
    "weight_bytes": "BIGINT",
    "kernels": "VARCHAR",
    **dict.fromkeys(MEMORY, "BIGINT"),
}
"""Columns of the Parquet files, which have a row for each case. `ratio` is the quantized model's latency divided by the float
model's: the median over passes, with the minimum `low` and the maximum `high`. Only networks have figures of memory, in
bytes; files of before lack these columns."""
TABLE = f"CREATE TABLE nights ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})"
PLATFORM = ("arch", "cpu", "isa", "cores")
SERIES = """
WITH figures AS (
    SELECT *, 'latency' AS figure, ratio AS value FROM stored
    UNION ALL SELECT *, 'peak memory', quantized_peak / nullif(floating_peak, 0) FROM stored
    UNION ALL SELECT *, 'size on disk', quantized_saved / nullif(floating_saved, 0) FROM stored
)
SELECT case_name, format('{} {}, {}, {} cores', arch, isa, cpu, cores), figure, list({
        'finished': strftime(finished, '%Y-%m-%d %H:%M'), 'revision': revision, 'torch': torch, 'ratio': value,
        'low': if(figure = 'latency', low, value), 'high': if(figure = 'latency', high, value)
    } ORDER BY finished)
FROM figures WHERE case_name GLOB ? AND value > 0
GROUP BY case_name, arch, cpu, isa, cores, figure ORDER BY case_name, arch, cpu, isa, cores, figure
"""
"""The nights of the ratio of the quantized to the float model, and of the memory and size of networks."""


@dataclass(frozen=True)
class Night:
    """One point of a series: the ratio of the quantized to the float model in the timings that were finished at this time."""

    finished: str
    revision: str
    torch: str
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    """The history of a figure of one case on one platform, sorted by time."""

    case: str
    platform: str
    nights: tuple[Night, ...]
    figure: str = "latency"

    @property
    def title(self) -> str:
        return self.case if self.figure == "latency" else f"{self.case}, {self.figure}"


@dataclass(frozen=True)
class ChangePoint:
    """A lasting change of a series: `index` is the first night after it, `change` the relative change of the ratio, `p` the
    p-value."""

    series: Series
    index: int
    change: float
    p: float

    @property
    def before(self) -> Night:
        return self.series.nights[self.index - 1]

    @property
    def after(self) -> Night:
        return self.series.nights[self.index]


def _values(case: str, passes: Sequence[Timing], file: TimingsFile) -> list[Any]:
    ratios = [math.exp(logarithm) for logarithm in log_ratios(passes)]
    head, counts = file.header, passes[0].counts
    environment = [head["git"] or "", head["torch"], *(head[name] for name in PLATFORM)]
    figures = [statistics.median(ratios), min(ratios), max(ratios), *case_seconds(passes)]
    memory = next((timing.memory for timing in passes if timing.memory), None)
    sizes = [getattr(memory, name, None) for name in MEMORY]
    return [case, file.finished, *environment, *figures, counts.weight_bytes, " ".join(counts.kernels), *sizes]


def store(file: TimingsFile, folder: Path) -> Path:
    """Add a file of timings to a history and return the path of its Parquet file. Raises UsageError if that exists."""
    head = file.header
    name_parts = [file.finished, head["git"] or "no-revision", head["arch"], head["isa"], head["torch"], head["form"]]
    path = folder / ("-".join(re.sub(r"[^\w.+]", "", part) for part in name_parts) + ".parquet")
    if path.exists():
        raise UsageError(f"{path}: {file.path} is in this history already")
    with replacing(path, "--history") as beside, duckdb.connect() as database:
        database.execute(TABLE)
        rows = [_values(case, passes, file) for case, passes in file.cases.items()]
        if rows:
            database.executemany(f"INSERT INTO nights VALUES ({', '.join('?' * len(COLUMNS))})", rows)
        try:
            database.execute(f"COPY nights TO {quoted(beside)} (FORMAT parquet)")
        except duckdb.Error as error:
            raise UsageError(f"--history {path}: {brief(error)}: name a folder that can be written") from error
    return path


def load(folder: Path, glob: str = "*") -> list[Series]:
    """The series of every case that matches a glob, by platform. Raises UsageError if there is none."""
    files = folder / "*.parquet"
    if not [*folder.glob(files.name)]:
        raise UsageError(
            f"{folder}: no history: `python -m conformance bench store TIMINGS… --history {folder}` begins one"
        )
    with duckdb.connect() as database:
        try:
            database.execute(TABLE)
            database.execute(
                f"CREATE VIEW stored AS FROM nights "
                f"UNION ALL BY NAME FROM read_parquet({quoted(files)}, union_by_name = true)"
            )
            found = database.execute(SERIES, [glob]).fetchall()
        except duckdb.Error as error:
            raise UsageError(f"{folder}: damaged, or no history: {str(error).splitlines()[0]}") from error
    if not found:
        raise UsageError(f"{folder}: no case {glob!r}: `bench history '*'` lists all cases")
    return [
        Series(case, platform, tuple(Night(**night) for night in nights), figure)
        for case, platform, figure, nights in found
    ]


def change_points(series: Series) -> list[ChangePoint]:
    """Lasting changes of a series by more than `AIM`."""
    logarithms = [math.log(night.ratio) for night in series.nights]
    candidates, _ = compute_change_points(logarithms, window_len=WINDOW, max_pvalue=P_VALUE)
    points = []
    for candidate in candidates:
        change = math.expm1(float(candidate.stats.mean_2) - float(candidate.stats.mean_1))
        if abs(change) > AIM:
            points.append(ChangePoint(series, int(candidate.index), change, float(candidate.stats.pvalue)))
    return points


def change_lines(point: ChangePoint, repository: Path) -> Iterator[str]:
    """Yield lines with the size and time of a change, and the versions and commits that were new at that time."""
    old, new = point.before, point.after
    series = point.series
    less, more = ("faster", "slower") if series.figure == "latency" else ("smaller", "larger")
    word = more if point.change > 0 else less
    yield f"{point.change:+.1%} {word} since {new.finished}: {plain(series.title)} ({plain(series.platform)})"
    if old.torch != new.torch:
        yield f"    torch {plain(old.torch)} → {plain(new.torch)}"
    if old.revision != new.revision:
        yield f"    {plain(old.revision)} → {plain(new.revision)}"
    yield from (f"    {plain(line)}" for line in commits(old.revision, new.revision, repository))


def lines(all_series: Iterable[Series], points: Sequence[ChangePoint], repository: Path) -> Iterator[str]:
    """Yield the lines of each series, one for each night, with changes after the first night that has them."""
    for series in all_series:
        yield f"{plain(series.title)} ({plain(series.platform)})"
        point_at = {point.index: point for point in points if point.series is series}
        for number, night in enumerate(series.nights):
            yield f"  {night.finished}  {night.ratio:8.3f} ({night.low:.3f} to {night.high:.3f})  {plain(night.revision)}"
            if number in point_at:
                yield from (f"    {line}" for line in change_lines(point_at[number], repository))


def alerts(all_series: Iterable[Series]) -> list[ChangePoint]:
    """Changes within the window before the last night that have lasted for several nights, the greatest first."""
    points = [point for series in all_series for point in change_points(series)]
    recent = [point for point in points if SUSTAINED <= len(point.series.nights) - point.index < WINDOW]
    return sorted(recent, key=lambda point: -abs(point.change))


def as_markdown(points: Sequence[ChangePoint], repository: Path) -> Iterator[str]:
    """Yield lines of a job summary about lasting changes."""
    yield f"## Lasting changes of latency and memory: {len(points)}"
    for point in points:
        first, *rest = change_lines(point, repository)
        yield ""
        yield f"- {code(first)}"
        yield from (f"  - {code(line.strip())}" for line in rest)
