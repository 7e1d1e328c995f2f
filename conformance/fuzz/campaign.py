"""Drawn cases tried on an engine: what is news about them, smallest first, and where it is kept."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from conformance.cases.claims import BackendClaims
from conformance.cases.runs import describe
from conformance.checks.judge import Judge
from conformance.execution.batch import crash, warm_up
from conformance.host.isolation import Child, Death, Done, Outcome, run_isolated
from conformance.properties.search import search
from conformance.repro.script import script
from conformance.results.ledger import Entry
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict

from .strategies import Drawn, Family, cases, like_ids, run_of

NOT_HELD = frozenset({"accuracy"})
"""Checks that drawn cases are not held to: a floor of the SQNR means little for a handful of elements."""


@dataclass(frozen=True)
class News:
    """A drawn case that deviates in a way that the ledger does not know of cases like it."""

    drawn: Drawn
    row: Row
    checks: frozenset[str]
    detail: str

    @property
    def signature(self) -> str:
        """What it is about, without figures: the search goes on for what has another one."""
        row = self.row
        text = f"{row.pattern}/{row.flow} {'+'.join(sorted(self.checks))} {self.detail[:80]}"
        return re.sub(r"-?\d[\d.e+-]*", "#", text)


@dataclass
class Trials:
    """Cases of one family, tried in a child.

    `entries` are those of the ledger that speak of this host. `tried` counts the cases, `beyond` those of them that the
    oracle has no certain answer for; `seen` has the signatures of news that is not told again.
    """

    family: Family
    entries: Sequence[Entry] = ()
    tried: int = 0
    beyond: int = 0
    seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        warm_up()
        self._child: Child[Drawn, tuple[Row, str]] = Child(self._judged)
        self.latest: News | None = None

    def _judged(self, drawn: Drawn) -> tuple[Row, str]:
        return Judge().row(run_of(self.family.backend, drawn))

    def _news(self, drawn: Drawn, outcome: Outcome[tuple[Row, str]]) -> News | None:
        if isinstance(outcome, Done):
            row, _ = outcome.value
        elif isinstance(outcome, Death):
            row = Row(**describe(run_of(self.family.backend, drawn)), verdict=Verdict.CRASHES, detail=crash(outcome))
        else:
            raise RuntimeError(f"the suite itself fails on {drawn}:\n{outcome.traceback}")
        failed = row.failed - NOT_HELD
        if failed:
            about = like_ids(self.family.backend, drawn)
            known = {name for entry in self.entries if any(map(entry.matches, about)) for name in entry.check}
            layouts = {spec.layout for spec in drawn.variant.operands.values()}
            if "stable" in known and "channels_last" in layouts:
                known |= {"numerics", "lowered"}  # what a memory format changes is wrong in that format, or raises
            if "numerics" in known and ("strided" in layouts or "numerics" in failed):
                # what is wrong in one memory format need not be in another, and has ties of its own
                known.add("stable")
            if "observed" in failed & known:
                known.add("reference")  # what nobody observes the reference model does not quantize
            failed -= known
        return News(drawn, row, failed, row.detail) if failed else None

    def breaks(self, drawn: Drawn) -> str:
        """Try a case and return what is news about it, if anything. What shows is tried again, alone in a child."""
        self.tried += 1
        outcome = self._child.do(drawn)
        self.beyond += isinstance(outcome, Done) and bool(outcome.value[1])
        news = self._news(drawn, outcome)
        if news is not None:
            (outcome,) = run_isolated([drawn], self._judged)
            news = self._news(drawn, outcome)
        if news is None or news.signature in self.seen:
            return ""
        self.latest = news
        return news.detail

    def next(self, share: float = 1.0) -> News | None:
        """Search for news and shrink it."""
        found = search(cases(self.family), self.breaks, share)
        self._child.close()
        if found is None:
            return None
        assert self.latest is not None  # the last that broke is the smallest
        self.seen.add(self.latest.signature)
        return self.latest

    def all(self, minutes: float | None = None, share: float = 1.0) -> Iterator[News]:
        """Search until a search finds no more news or, with `minutes`, until these are over."""
        end = time.monotonic() + 60 * (minutes or 0)
        while True:
            news = self.next(share)
            if news is not None:
                yield news
            if time.monotonic() > end and (news is None or minutes):
                return


def reproduction(backend: BackendClaims, news: News) -> str:
    """The news as a script that needs torch alone."""
    return script(run_of(backend, news.drawn), news.row, None)


def keep(folder: Path, backend: BackendClaims, news: News) -> Path:
    """Write the news into a folder, as a script and as JSON beside it, and return the script's path."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.+-]+", "_", f"{news.row.backend}-{news.row.pattern}-{news.row.dtype_config}-{news.row.engine}")
    number = next(n for n in range(1, 10_000) if not (folder / f"{name}-{n}.json").exists())
    document = {"drawn": asdict(news.drawn), "checks": sorted(news.checks), "row": news.row.to_json()}
    for path, text in (
        (folder / f"{name}-{number}.py", reproduction(backend, news)),
        (folder / f"{name}-{number}.json", json.dumps(document, indent=1) + "\n"),
    ):
        aside = path.with_name(path.name + ".partial")
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    return folder / f"{name}-{number}.py"
