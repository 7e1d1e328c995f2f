"""Fuzzing campaigns: samples run on an engine, and the deviations among them that the ledger does not list."""

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from itertools import zip_longest
from pathlib import Path

from hypothesis import settings

from conformance.cases.claims import BackendClaims
from conformance.cases.families import Family
from conformance.checks.judge import Judge
from conformance.checks.likeness import Likeness
from conformance.configs.engines import ENGINE_TABLE
from conformance.execution.batch import Judged, crashed_row, make_ready
from conformance.host.isolation import Child, Death, Done, Outcome, run_isolated
from conformance.models.taken import take_shortcuts
from conformance.properties.search import search
from conformance.repro.script import script
from conformance.results.findings.stages import Raises
from conformance.results.jsonl import replacing
from conformance.results.known import Entry
from conformance.results.rows import Row
from conformance.shortcuts import enabled

from .samples import Sample, run_of
from .strategies import samples

NOT_CHECKED = frozenset({"accuracy"})
"""Checks that samples need not pass: a floor of the SQNR means little for a handful of elements."""


@dataclass(frozen=True)
class Deviation:
    """A sample that fails `checks`, none of which the ledger lists for a similar run, with its row."""

    sample: Sample
    row: Row
    checks: frozenset[str]

    @property
    def detail(self) -> str:
        return self.row.detail

    @property
    def signature(self) -> tuple[object, ...]:
        """Pattern, flow, failed checks and kinds of their findings: equal signatures are reported once."""
        findings = {
            (finding.check, finding.kind, *((finding.stage, finding.exception) if isinstance(finding, Raises) else ()))
            for finding in self.row.findings
            if finding.check in self.checks
        }
        return self.row.pattern, self.row.flow, self.checks, frozenset(findings)


CHUNK = 100
"""Samples that one child judges: children run without automatic collection."""


@dataclass
class Draws:
    """The samples that bounded searches of one family draw, judged on every engine before any of the searches.

    A bounded search draws the same samples every time until one of them deviates, and engines with the same recipes draw the
    same. `families` differ in the engine only; `share` is that of the searches.
    """

    families: Sequence[Family]
    share: float = 1.0

    def __post_init__(self) -> None:
        self._samples: dict[bool, list[Sample]] = {}

    @cached_property
    def outcomes(self) -> Mapping[str, Sequence[tuple[Sample, Outcome[Judged]]]]:
        """The samples of each engine in the order in which they are drawn, with the outcomes of judging them."""
        drawn = {family.engine: self._drawn(family) for family in self.families}
        # the same sample on several engines in turn, because they share what does not depend on the engine
        together = [sample for samples_of_all in zip_longest(*drawn.values()) for sample in samples_of_all if sample]
        judged: list[Outcome[Judged]] = []
        for start in range(0, len(together), CHUNK):
            judged += run_isolated(together[start : start + CHUNK], judging(self.families[0].backend))
        outcomes: dict[str, list[tuple[Sample, Outcome[Judged]]]] = {name: [] for name in drawn}
        for sample, outcome in zip(together, judged, strict=True):
            outcomes[sample.engine].append((sample, outcome))
        return outcomes

    def _drawn(self, family: Family) -> list[Sample]:
        """The samples that a search of a family draws."""
        recipes = ENGINE_TABLE[family.engine].reduced_range
        if recipes not in self._samples:
            self._samples[recipes] = []
            search(samples(family), self._samples[recipes].append, self.share)
        return [replace(sample, engine=family.engine) for sample in self._samples[recipes]]


def judging(backend: BackendClaims) -> Callable[[Sample], Judged]:
    """A function that judges samples of a backend. One judge takes all of them, because they share claims."""

    @cache
    def judge() -> Judge:
        take_shortcuts()
        return Judge()

    def judged(sample: Sample) -> Judged:
        before = judge().watch.seconds
        row, unusable = judge().row(run_of(backend, sample))
        return Judged(row, judge().watch.seconds - before, unusable)

    return judged


@dataclass
class Campaign:
    """A search for unlisted deviations in one family; samples are judged in a child process.

    `entries` are the ledger's entries for this host. `judged` counts the samples, `uncertain` those of them for which the
    oracle has no certain answer, and `torch_seconds` the seconds that they spent in torch; `reported` has the signatures of
    deviations that are not reported again. With `draws`, a bounded search is made only if a sample deviates among those that
    it would draw.
    """

    family: Family
    entries: Sequence[Entry] = ()
    draws: Draws | None = None
    judged: int = 0
    uncertain: int = 0
    torch_seconds: float = 0.0
    reported: set[tuple[object, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        make_ready([self.family.backend], [self.family.engine])
        self._judge = judging(self.family.backend)
        self._child: Child[Sample, Judged] = Child(self._judge)
        self.latest: Deviation | None = None
        self._likeness = Likeness(self.entries)

    def _deviation(self, sample: Sample, outcome: Outcome[Judged]) -> Deviation | None:
        """The unlisted deviation of a sample, if any. Raises RuntimeError if the suite itself fails."""
        if isinstance(outcome, Done):
            row = outcome.value.row
        elif isinstance(outcome, Death):
            row = crashed_row(run_of(self.family.backend, sample), outcome)
        else:
            raise RuntimeError(f"the suite itself fails on {sample}:\n{outcome.traceback}")
        failed = row.failed - NOT_CHECKED
        run = run_of(self.family.backend, sample)
        unlisted = failed - self._likeness.known(run, row) if failed else failed
        return Deviation(sample, row, unlisted) if unlisted else None

    def judge(self, sample: Sample) -> str:
        """Judge a sample and return the detail of its unlisted deviation, or an empty string.

        A deviation is judged again in a child of its own, since earlier samples may have damaged the memory of the first.
        """
        outcome = self._child.do(sample)
        self._count([outcome])
        deviation = self._deviation(sample, outcome)
        if deviation is not None:
            (outcome,) = run_isolated([sample], self._judge)
            deviation = self._deviation(sample, outcome)
        if deviation is None or deviation.signature in self.reported:
            return ""
        self.latest = deviation
        return deviation.detail

    def next(self, share: float = 1.0, seconds: float = math.inf) -> Deviation | None:
        """Search for an unlisted deviation and shrink it; `share` scales the number of samples.

        After `seconds` the search ends, or the shrinking, which takes at most a tenth of them.
        """
        if self._nothing_drawn_deviates(share):
            return None
        ends = [time.monotonic() + seconds]  # and then that of shrinking, from each deviation on

        def judge(sample: Sample) -> str:
            if violation := self.judge(sample):
                ends.append(time.monotonic() + seconds / 10)
            return violation

        counterexample = search(samples(self.family), judge, share, lambda: time.monotonic() > min(ends[:2]))
        self._child.close()
        if counterexample is None:
            return None
        assert self.latest is not None  # hypothesis ends with the smallest sample that deviates
        self.reported.add(self.latest.signature)
        return self.latest

    def _nothing_drawn_deviates(self, share: float) -> bool:
        """Whether the samples that a bounded search would draw are known and show nothing new."""
        if self.draws is None or share != self.draws.share or not settings().derandomize or not enabled("draws"):
            return False
        outcomes = self.draws.outcomes[self.family.engine]
        if any(self._deviation(sample, outcome) for sample, outcome in outcomes):
            return False
        self._count([outcome for _, outcome in outcomes])
        return True

    def _count(self, outcomes: Sequence[Outcome[Judged]]) -> None:
        self.judged += len(outcomes)
        done = [outcome.value for outcome in outcomes if isinstance(outcome, Done)]
        self.uncertain += sum(bool(judged.unusable) for judged in done)
        self.torch_seconds += sum(judged.torch_seconds for judged in done)

    def all(self, minutes: float | None = None, share: float = 1.0) -> Iterator[Deviation]:
        """Search until a search finds nothing or, with `minutes`, until these are over, whatever it is at."""
        if minutes is None:
            while deviation := self.next(share):
                yield deviation
            return
        end = time.monotonic() + 60 * minutes
        while (seconds := end - time.monotonic()) > 0:
            if deviation := self.next(share, seconds):
                yield deviation


def reproduction(backend: BackendClaims, deviation: Deviation) -> str:
    """The deviation as a script that needs only torch."""
    return script(run_of(backend, deviation.sample), deviation.row, None)


def keep(folder: Path, backend: BackendClaims, deviation: Deviation) -> Path:
    """Write the deviation into a folder as a script, with a JSON file beside it, and return the script's path."""
    row = deviation.row
    name = re.sub(r"[^\w.+-]+", "_", f"{row.backend}-{row.pattern}-{row.dtype_config}-{row.engine}")
    number = next(n for n in range(1, 10_000) if not (folder / f"{name}-{n}.json").exists())
    document = {"drawn": asdict(deviation.sample), "checks": sorted(deviation.checks), "row": row.to_json()}
    for path, text in (
        (folder / f"{name}-{number}.py", reproduction(backend, deviation)),
        (folder / f"{name}-{number}.json", json.dumps(document, indent=1) + "\n"),
    ):
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")
    return folder / f"{name}-{number}.py"
