"""What got slower or faster from one file of timings to another, or from one build of torch to another within one.

A pass over a case is one observation: the logarithm of a ratio of the fastest of its rounds. It is that of the lowered model
to the float model; of two builds that were timed in turns, that of one lowered model to the other. Passes are made by
processes of their own, rounds of one pass are not independent.

A case is *slower* if its ratio grew by more than a margin, tested with Welch's t on the passes (Student's where the builds
are paired), and likewise *faster*; it is the *same* if it changed by less than that in either direction (two one-sided tests,
Schuirmann 1987); else the passes are *inconclusive*. p-values of all cases together are adjusted for the false discovery rate
(Benjamini and Hochberg 1995), so that of the verdicts slower and faster no more than this share is expected to be wrong.
"""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats

from conformance.bench.results import Timing, TimingsFile
from conformance.errors import UsageError
from conformance.markdown import code, plain

MARGIN = 0.03
"""Changes up to this share are of no interest: where memory lies makes as much."""
RATE = 0.05
"""Share of the verdicts slower and faster that may be wrong."""
CONFIDENCE = 0.95
VERDICTS = ("slower", "faster", "inconclusive", "same")
MACHINE = ("cpu", "arch", "isa", "cores")
"""Fields of a header in which two files have to be the same."""


@dataclass(frozen=True)
class Changed:
    """How one case changed: its ratio before and after, the change with its interval as shares, and what that comes to.

    `counts` says which counts are others than before, as texts."""

    case: str
    before: float
    after: float
    change: float
    low: float
    high: float
    q: float
    verdict: str
    counts: tuple[str, ...]


@dataclass(frozen=True)
class Regression:
    """Two sets of timings compared. `paired` says that they are two builds that one file has in turns."""

    before: str
    after: str
    paired: bool
    margin: float
    rate: float
    cases: tuple[Changed, ...]
    gone: tuple[str, ...]
    came: tuple[str, ...]

    @property
    def worse(self) -> bool:
        return any(one.verdict == "slower" for one in self.cases)


Observed = tuple[list[float] | None, list[float]]
"""Observations before and after, one a pass; of builds in turns, nothing and those of the one beside the other."""


@dataclass(frozen=True)
class Case:
    """What is known of a case before it is judged among the others."""

    name: str
    observed: Observed
    before: float
    after: float
    counts: tuple[str, ...]


def compare(
    before: TimingsFile,
    after: TimingsFile | None = None,
    *,
    other_machines: bool = False,
    margin: float = MARGIN,
    rate: float = RATE,
) -> Regression:
    """Compare two files, or the two builds of one.

    Raises UsageError for files of different machines, unless told otherwise, for files without common cases, for a file
    without a second build, and for passes that are too few.
    """
    if after is None:
        if before.header["against"] is None:
            raise UsageError(f"{before.path}: has one build: time it with --against, or name a second file")
        found = [Case(case, _paired(passes), *_builds(passes), ()) for case, passes in before.cases.items()]
        cases = _judged(found, margin, rate)
        return Regression(
            f"torch {before.header['against']['torch']}",
            f"torch {before.header['torch']}",
            True,
            margin,
            rate,
            cases,
            (),
            (),
        )
    if not other_machines:
        _same_machine(before, after)
    old, new = before.cases, after.cases
    common = sorted(old.keys() & new.keys())
    if not common:
        raise UsageError(
            f"{before.path} and {after.path}: no case was timed in both: they are of other backends or forms"
        )
    found = []
    for case in common:
        observed = _apart(old[case], new[case])
        was, now = (math.exp(statistics.mean(one or ())) for one in observed)
        found.append(Case(case, observed, was, now, _counted(old[case][0], new[case][0])))
    gone, came = (tuple(sorted(one.keys() - other.keys())) for one, other in ((old, new), (new, old)))
    cases = _judged(found, margin, rate)
    return Regression(str(before.path), str(after.path), False, margin, rate, cases, gone, came)


def _same_machine(before: TimingsFile, after: TimingsFile) -> None:
    for name in MACHINE:
        if (old := before.header.get(name)) != (new := after.header.get(name)):
            raise UsageError(
                f"{before.path} and {after.path}: {name} is {old!r} in one and {new!r} in the other, so that a change says "
                "nothing of the code; --other-machines compares them all the same"
            )


def _counted(before: Timing, after: Timing) -> tuple[str, ...]:
    old, new = asdict(before.counts), asdict(after.counts)
    return tuple(f"{name}: {old[name]} → {new[name]}" for name in old if old[name] != new[name])


def _enough(passes: Sequence[object], case: str) -> None:
    if len(passes) < 3:
        raise UsageError(f"{case}: {len(passes)} passes: a comparison needs 3 at least (--passes)")


def _apart(old: Sequence[Timing], new: Sequence[Timing]) -> Observed:
    for passes in (old, new):
        _enough(passes, passes[0].case)
    return [one.new.log_ratio for one in old], [one.new.log_ratio for one in new]


def _paired(passes: Sequence[Timing]) -> Observed:
    _enough(passes, passes[0].case)
    taken = [(one.new, one.base) for one in passes if one.base is not None]
    return None, [math.log(min(new.quantized) / min(base.quantized)) for new, base in taken]


def _test(old: list[float] | None, new: list[float], shift: float, alternative: str) -> float:
    """p-value of the hypothesis that the change is beyond `shift`, in one direction."""
    if old is None:
        made = stats.ttest_1samp(new, shift, alternative=alternative)
    else:
        made = stats.ttest_ind(new, np.add(old, shift), equal_var=False, alternative=alternative)
    return float(made.pvalue) if math.isfinite(made.pvalue) else 1.0


def _interval(old: list[float] | None, new: list[float]) -> tuple[float, float]:
    """Bootstrap interval of the change, over passes."""
    if old is None:
        made = stats.bootstrap((new,), np.mean, confidence_level=CONFIDENCE, method="percentile", rng=0)
    else:

        def difference(one: Any, other: Any, axis: int = -1) -> Any:
            return np.mean(other, axis=axis) - np.mean(one, axis=axis)

        made = stats.bootstrap((old, new), difference, confidence_level=CONFIDENCE, method="percentile", rng=0)
    return float(made.confidence_interval.low), float(made.confidence_interval.high)


def _builds(passes: Sequence[Timing]) -> tuple[float, float]:
    """The ratios of lowered to float model of the other build and of this one."""
    base, new = ([getattr(one, name).log_ratio for one in passes] for name in ("base", "new"))
    return math.exp(statistics.mean(base)), math.exp(statistics.mean(new))


def _judged(cases: Sequence[Case], margin: float, rate: float) -> tuple[Changed, ...]:
    """Judge all cases together; what changed most first."""
    bound = math.log1p(margin)
    other, same = [], []
    for case in cases:
        more, less = _test(*case.observed, bound, "greater"), _test(*case.observed, -bound, "less")
        other.append(min(1.0, 2 * min(more, less)))
        same.append(max(_test(*case.observed, bound, "less"), _test(*case.observed, -bound, "greater")))
    made = []
    for case, changed, unchanged in zip(cases, _adjusted(other), _adjusted(same), strict=True):
        old, new = case.observed
        change = statistics.mean(new) - (statistics.mean(old) if old else 0.0)
        verdict = "inconclusive"
        if changed <= rate:
            verdict = "slower" if change > 0 else "faster"
        elif unchanged <= rate:
            verdict = "same"
        low, high = map(math.expm1, _interval(old, new))
        share = math.expm1(change)
        made.append(Changed(case.name, case.before, case.after, share, low, high, changed, verdict, case.counts))
    return tuple(sorted(made, key=lambda one: (-one.change, one.case)))


def _adjusted(values: Sequence[float]) -> list[float]:
    return [float(one) for one in stats.false_discovery_control(values)] if values else []


def counted(regression: Regression) -> dict[str, int]:
    """How many cases have each verdict."""
    counts = Counter(one.verdict for one in regression.cases)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def stated(regression: Regression) -> str:
    what = "one build to the other's latency" if regression.paired else "the quantized to the float model's latency"
    return (
        f"The change is that of the ratio of {what}. Verdicts are about changes of more than {regression.margin:.0%}; "
        f"of those that say slower or faster at most {regression.rate:.0%} are expected to be wrong. Intervals are "
        "bootstrapped over passes."
    )


def _percent(share: float) -> str:
    return f"{share:+.1%}"


def as_text(regression: Regression) -> Iterator[str]:
    """Yield lines: what was compared, verdicts by number, and each case that is slower, faster or inconclusive."""
    yield f"{plain(regression.before)} → {plain(regression.after)}"
    yield ", ".join(f"{count} {verdict}" for verdict, count in counted(regression).items())
    yield stated(regression)
    for one in regression.cases:
        if one.verdict in ("slower", "faster") or one.counts:
            interval = f"{_percent(one.low)} to {_percent(one.high)}"
            yield f"{one.verdict:12} {_percent(one.change):>7} ({interval}) {plain(one.case)}"
            yield from (f"{'':12} {plain(text)}" for text in one.counts)
    for name, cases in (("gone", regression.gone), ("came", regression.came)):
        yield from (f"{name:12} {plain(case)}" for case in cases)


def as_markdown(regression: Regression) -> Iterator[str]:
    """Yield lines of a section for a release note or a job summary."""
    yield f"## Latency: {code(regression.before)} → {code(regression.after)}"
    yield ""
    yield (
        ", ".join(f"**{count}** {verdict}" for verdict, count in counted(regression).items())
        + ". "
        + stated(regression)
    )
    shown = [one for one in regression.cases if one.verdict in ("slower", "faster") or one.counts]
    if shown:
        yield ""
        yield "| verdict | change | interval | case | before | after | counts |"
        yield "| --- | ---: | --- | --- | ---: | ---: | --- |"
    for one in shown:
        counts = "; ".join(code(text) for text in one.counts)
        yield (
            f"| {one.verdict} | {_percent(one.change)} | {_percent(one.low)} to {_percent(one.high)} | {code(one.case)} | "
            f"{one.before:.3g} | {one.after:.3g} | {counts} |"
        )
    for name, cases in (("No longer timed", regression.gone), ("Newly timed", regression.came)):
        if cases:
            yield ""
            yield f"{name}: {', '.join(map(code, cases))}"


def as_json(regression: Regression) -> str:
    return json.dumps({**asdict(regression), "verdicts": counted(regression)}, indent=1)


FORMATS: Mapping[str, Any] = {
    "text": lambda one: "\n".join(as_text(one)),
    "markdown": lambda one: "\n".join(as_markdown(one)),
    "json": as_json,
}
