"""When runs of a history of rows became as they are: since when a run has its outcome, and the first bad night of runs."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from conformance.markdown import code, escaped, plain
from conformance.results.verdicts import Verdict

from .documents import count
from .nights import Filter, loaded, platform
from .revisions import commits
from .rows_history import quoted
from .trends import FAILING

MOST = 20
"""Runs that are listed of a night; JSON has all."""
NONE = "no run became bad"
UNCHANGED = "neither torch nor the revision nor the processor changed"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run in one night, and what it may depend on. `failed` are the names of the failed checks."""

    date: str
    torch: str
    revision: str
    cpu: str
    verdict: str
    failed: tuple[str, ...]

    @property
    def state(self) -> str:
        """The verdict with the failed checks."""
        checks = [name for name in self.failed if name != Verdict.CRASHES]
        return f"{self.verdict} ({', '.join(checks)})" if checks else self.verdict

    @property
    def fails(self) -> bool:
        return Verdict(self.verdict).fails

    @property
    def where(self) -> str:
        """The date with torch and the revision."""
        revision = f", revision {self.revision}" if self.revision else ""
        return plain(f"{self.date} (torch {self.torch}{revision})")


@dataclass(frozen=True)
class Onset:
    """When a run became as it was in the night `first`, on a platform: `before` is the last night with another state, None if
    there is none, and `last` the last night of the history."""

    run: str
    arch: str
    isa: str
    before: Outcome | None
    first: Outcome
    last: Outcome

    @property
    def platform(self) -> str:
        return platform(self.arch, self.isa)


OUTCOMES = """
outcomes AS (
    SELECT series, id, arch, isa, date, verdict || ' ' || failed AS state, verdict,
        {'date': date, 'torch': torch, 'revision': revision, 'cpu': cpu, 'verdict': verdict, 'failed': failed} AS outcome
    FROM results JOIN nights USING (night) JOIN series USING (night)
)
"""
SINCE = f"""
WITH {OUTCOMES}, states AS (
    SELECT series, id, arg_max(state, date) AS last_state FROM outcomes GROUP BY ALL
), changes AS (
    SELECT series, id, max(date) FILTER (state <> last_state) AS changed
    FROM outcomes JOIN states USING (series, id) GROUP BY ALL
)
SELECT id, arch, isa, arg_max(outcome, date) FILTER (date <= changed),
    arg_min(outcome, date) FILTER (changed IS NULL OR date > changed), arg_max(outcome, date)
FROM outcomes JOIN changes USING (series, id) GROUP BY series, id, arch, isa ORDER BY id, arch, isa, series
"""
FIRST_BAD = f"""
WITH {OUTCOMES}, executed AS (
    SELECT *, {FAILING} AS bad FROM outcomes WHERE verdict <> {quoted(Verdict.UNAVAILABLE)}
), changed AS (
    SELECT series, id FROM executed GROUP BY ALL HAVING bool_or(bad) AND NOT bool_and(bad)
), steps AS (
    SELECT *, lag(outcome) OVER nights_of_run AS before, bad AND NOT lag(bad) OVER nights_of_run AS became
    FROM executed SEMI JOIN changed USING (series, id)
    WINDOW nights_of_run AS (PARTITION BY series, id ORDER BY date)
)
SELECT id, arch, isa, arg_max(before, date) FILTER (became), arg_max(outcome, date) FILTER (became), arg_max(outcome, date)
FROM steps GROUP BY series, id, arch, isa HAVING bool_or(became) ORDER BY id, arch, isa, series
"""


def since(history: str, wanted: Filter) -> list[Onset]:
    """For each run and platform the first night of its present state, and the last one with another state.

    Raises UsageError as `nights.loaded` does.
    """
    return _onsets(history, wanted, SINCE)


def first_bad(history: str, wanted: Filter) -> list[Onset]:
    """The runs that deviate or crash in a night after they conformed, with the last such night of each, and the night before.

    Nights in which the engine was unavailable do not count. Raises UsageError as `nights.loaded` does.
    """
    # series that have nights in common have their changes in common
    onsets = {
        (onset.run, onset.platform, onset.before, onset.first): onset for onset in _onsets(history, wanted, FIRST_BAD)
    }
    return [*onsets.values()]


def _onsets(history: str, wanted: Filter, query: str) -> list[Onset]:
    with loaded(history, wanted) as database:
        found = database.execute(query).fetchall()
    return [Onset(run, arch, isa, *map(_outcome, outcomes)) for run, arch, isa, *outcomes in found]


def _outcome(values: Mapping[str, Any] | None) -> Any:
    return values and Outcome(**{**values, "failed": tuple(values["failed"].split())})


def changes(before: Outcome, after: Outcome, repository: Path) -> list[str]:
    """A line for each of torch, the revision and the processor that differs between two nights, and for each commit."""
    lines = [
        f"{name} {plain(old or 'unknown')} → {plain(new or 'unknown')}"
        for name in ("torch", "revision", "cpu")
        for old, new in [(getattr(before, name), getattr(after, name))]
        if old != new
    ]
    return [*lines, *map(plain, commits(before.revision, after.revision, repository))]


def since_text(onsets: Sequence[Onset], repository: Path) -> Iterator[str]:
    """Yield lines for a terminal: for each run and platform both nights, and what changed between them."""
    for onset in onsets:
        yield f"{plain(onset.run)} ({plain(onset.platform)})"
        yield f"  {plain(onset.first.state)} since {onset.first.where}, last on {onset.last.where}"
        if onset.before is None:
            yield "  no night before it has another state"
        else:
            yield f"  {plain(onset.before.state)} until {onset.before.where}"
            yield from (f"    {line}" for line in changes(onset.before, onset.first, repository))


def since_markdown(onsets: Sequence[Onset], repository: Path) -> Iterator[str]:
    """Yield lines of a list of markdown."""
    for onset in onsets:
        until = f"; {onset.before.state} until {onset.before.where}" if onset.before else ""
        text = f"{onset.first.state} since {onset.first.where}{until}"
        yield f"- {code(onset.run)} ({escaped(onset.platform)}): {escaped(text)}"
        if onset.before is not None:
            yield from (f"  - {code(line)}" for line in changes(onset.before, onset.first, repository))


def _together(onsets: Iterable[Onset], repository: Path) -> Iterator[tuple[str, list[str], list[Onset]]]:
    """Yield, in order of date, the onsets between the same nights, with a title and what changed between these."""
    night = attrgetter("date", "torch", "revision", "cpu")

    def key(onset: Onset) -> tuple[Any, ...]:
        return night(onset.first), night(onset.before), onset.platform

    for _, members in groupby(sorted(onsets, key=key), key):
        group = [*members]
        first, before = group[0].first, group[0].before
        assert before is not None
        title = (
            f"{first.where} on {group[0].platform}: {count(len(group), 'run')} became bad, conformed on {before.where}"
        )
        yield title, changes(before, first, repository) or [UNCHANGED], group


def _bad(onset: Onset) -> str:
    recovered = "" if onset.last.fails else f"; {onset.last.state} on {onset.last.date}"
    return f"{onset.first.state}{recovered}"


def first_bad_text(onsets: Sequence[Onset], repository: Path) -> Iterator[str]:
    """Yield lines for a terminal: the runs that became bad between the same nights, and what changed between these."""
    if not onsets:
        yield NONE
    for title, changed, group in _together(onsets, repository):
        yield plain(title)
        yield from (f"    {line}" for line in changed)
        yield from (f"  {plain(onset.run)}: {plain(_bad(onset))}" for onset in group[:MOST])
        if len(group) > MOST:
            yield f"  and {len(group) - MOST} more: --format json has all"


def first_bad_markdown(onsets: Sequence[Onset], repository: Path) -> Iterator[str]:
    """Yield lines of a section of a job summary."""
    yield f"## Runs that became bad: {len(onsets)}"
    for title, changed, group in _together(onsets, repository):
        yield from ("", f"- {escaped(title)}")
        yield from (f"  - {code(line)}" for line in changed)
        yield from (f"  - {code(onset.run)}: {escaped(_bad(onset))}" for onset in group[:MOST])
        if len(group) > MOST:
            yield f"  - and {len(group) - MOST} more"


def as_json(onsets: Sequence[Onset], repository: Path) -> Iterator[str]:
    """Yield a JSON array of the onsets."""
    yield json.dumps([asdict(onset) for onset in onsets], indent=1)


Format = Callable[[Sequence[Onset], Path], Iterable[str]]
SINCE_FORMATS: Mapping[str, Format] = {"text": since_text, "markdown": since_markdown, "json": as_json}
FIRST_BAD_FORMATS: Mapping[str, Format] = {"text": first_bad_text, "markdown": first_bad_markdown, "json": as_json}
