"""Comparison of latencies: between two files of timings, or between two builds of torch timed in one file.

Each pass over a case is one observation: the logarithm of a ratio of latencies, each the fastest round of the pass. The
ratio is that of the lowered to the float model, or, for two builds timed in turns, that of the two lowered models. Every pass
has its own process, because the rounds of one process are not independent.

A case is *slower* if its ratio grew by more than a margin, by Welch's t-test on the passes (Student's for paired builds),
and *faster* if it shrank by more. It is the *same* if it changed by less than the margin in either direction (two one-sided
tests, Schuirmann 1987). Otherwise it is *inconclusive*. p-values of all cases are adjusted for the false discovery rate
(Benjamini and Hochberg 1995): at most this share of the verdicts slower and faster is expected to be wrong.
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
"""Relative changes up to this size are ignored: the placement of memory alone causes as much."""
RATE = 0.05
"""False discovery rate of the verdicts slower and faster."""
CONFIDENCE = 0.95
VERDICTS = ("slower", "faster", "inconclusive", "same")
MACHINE = ("cpu", "arch", "isa", "cores")
"""Fields of a header that must be equal in two files that are compared."""


@dataclass(frozen=True)
class Changed:
    """Comparison of one case: its ratio before and after, the relative change with its interval, the adjusted p-value `q`,
    and the verdict. `counts` describes the counts that changed."""

    case: str
    before: float
    after: float
    change: float
    low: float
    high: float
    q: float
    verdict: str
    counts: tuple[str, ...]

    @property
    def listed(self) -> bool:
        """Whether reports list the case: it is slower or faster, or its counts changed."""
        return self.verdict in ("slower", "faster") or bool(self.counts)

    @property
    def interval(self) -> str:
        return f"{_percent(self.low)} to {_percent(self.high)}"


@dataclass(frozen=True)
class Regression:
    """Comparison of two sets of timings. `paired` is true for two builds timed in turns in one file."""

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
        """Whether any case is slower."""
        return any(case.verdict == "slower" for case in self.cases)


Observed = tuple[list[float] | None, list[float]]
"""The observations of the passes before and after; for paired builds, None and the observations of the builds' ratio."""


@dataclass(frozen=True)
class Case:
    """A case before its p-value is adjusted for those of the other cases."""

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

    Raises UsageError for files of different machines unless `other_machines`, for files without common cases, for a file
    without a second build, and for fewer than three passes.
    """
    if after is None:
        if before.header["against"] is None:
            raise UsageError(f"{before.path}: has one build: time it with --against, or name a second file")
        paired = [Case(case, _paired(passes), *_builds(passes), ()) for case, passes in before.cases.items()]
        cases = _judged(paired, margin, rate)
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
    observed_cases = []
    for case in common:
        observed = _apart(old[case], new[case])
        old_ratio, new_ratio = (math.exp(statistics.mean(ratios or ())) for ratios in observed)
        observed_cases.append(Case(case, observed, old_ratio, new_ratio, _counted(old[case][0], new[case][0])))
    gone, came = tuple(sorted(old.keys() - new.keys())), tuple(sorted(new.keys() - old.keys()))
    cases = _judged(observed_cases, margin, rate)
    return Regression(str(before.path), str(after.path), False, margin, rate, cases, gone, came)


def _same_machine(before: TimingsFile, after: TimingsFile) -> None:
    for name in MACHINE:
        if (old := before.header.get(name)) != (new := after.header.get(name)):
            raise UsageError(
                f"{before.path} and {after.path}: {name} is {old!r} in one and {new!r} in the other, so a change may be "
                "the machine's; --other-machines compares them nevertheless"
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
    return [timing.new.log_ratio for timing in old], [timing.new.log_ratio for timing in new]


def _paired(passes: Sequence[Timing]) -> Observed:
    _enough(passes, passes[0].case)
    builds = [(timing.new, timing.base) for timing in passes if timing.base is not None]
    return None, [math.log(min(new.quantized) / min(base.quantized)) for new, base in builds]


def _test(old: list[float] | None, new: list[float], shift: float, alternative: str) -> float:
    """p-value of a one-sided test that the change is greater, or less, than `shift`."""
    if old is None:
        test = stats.ttest_1samp(new, shift, alternative=alternative)
    else:
        test = stats.ttest_ind(new, np.add(old, shift), equal_var=False, alternative=alternative)
    return float(test.pvalue) if math.isfinite(test.pvalue) else 1.0


def _interval(old: list[float] | None, new: list[float]) -> tuple[float, float]:
    """Bootstrap confidence interval of the change, over passes."""
    if old is None:
        result = stats.bootstrap((new,), np.mean, confidence_level=CONFIDENCE, method="percentile", rng=0)
    else:

        def difference(before: Any, after: Any, axis: int = -1) -> Any:
            return np.mean(after, axis=axis) - np.mean(before, axis=axis)

        result = stats.bootstrap((old, new), difference, confidence_level=CONFIDENCE, method="percentile", rng=0)
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _builds(passes: Sequence[Timing]) -> tuple[float, float]:
    """The geometric means, over passes, of the latency ratios of the lowered to the float model: other build, this build."""
    base, new = ([getattr(timing, name).log_ratio for timing in passes] for name in ("base", "new"))
    return math.exp(statistics.mean(base)), math.exp(statistics.mean(new))


def _judged(cases: Sequence[Case], margin: float, rate: float) -> tuple[Changed, ...]:
    """Compare all cases. The result is sorted by change, the greatest slowdown first."""
    bound = math.log1p(margin)
    p_changed, p_same = [], []
    for case in cases:
        p_greater, p_less = _test(*case.observed, bound, "greater"), _test(*case.observed, -bound, "less")
        p_changed.append(min(1.0, 2 * min(p_greater, p_less)))
        p_same.append(max(_test(*case.observed, bound, "less"), _test(*case.observed, -bound, "greater")))
    judged = []
    for case, changed, unchanged in zip(cases, _adjusted(p_changed), _adjusted(p_same), strict=True):
        old, new = case.observed
        change = statistics.mean(new) - (statistics.mean(old) if old else 0.0)
        verdict = "inconclusive"
        if changed <= rate:
            verdict = "slower" if change > 0 else "faster"
        elif unchanged <= rate:
            verdict = "same"
        low, high = map(math.expm1, _interval(old, new))
        share = math.expm1(change)
        judged.append(Changed(case.name, case.before, case.after, share, low, high, changed, verdict, case.counts))
    return tuple(sorted(judged, key=lambda case: (-case.change, case.case)))


def _adjusted(values: Sequence[float]) -> list[float]:
    return [float(value) for value in stats.false_discovery_control(values)] if values else []


def counted(regression: Regression) -> dict[str, int]:
    """The number of cases by verdict."""
    counts = Counter(case.verdict for case in regression.cases)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def explanation(regression: Regression) -> str:
    """Sentences that explain the figures."""
    latencies = (
        "one build to the other's latency" if regression.paired else "the quantized to the float model's latency"
    )
    return (
        f"The change is that of the ratio of {latencies}. Verdicts are about changes of more than {regression.margin:.0%}; "
        f"at most {regression.rate:.0%} of the verdicts slower and faster are expected to be wrong. Intervals are "
        "bootstrapped over passes."
    )


def _percent(share: float) -> str:
    return f"{share:+.1%}"


def as_text(regression: Regression) -> Iterator[str]:
    """Yield lines for a terminal: the names of both sides, the number of cases by verdict, and the listed cases."""
    yield f"{plain(regression.before)} → {plain(regression.after)}"
    yield ", ".join(f"{count} {verdict}" for verdict, count in counted(regression).items())
    yield explanation(regression)
    for case in regression.cases:
        if case.listed:
            yield f"{case.verdict:12} {_percent(case.change):>7} ({case.interval}) {plain(case.case)}"
            yield from (f"{'':12} {plain(text)}" for text in case.counts)
    for name, cases in (("gone", regression.gone), ("came", regression.came)):
        yield from (f"{name:12} {plain(case)}" for case in cases)


def as_markdown(regression: Regression) -> Iterator[str]:
    """Yield lines of a section of a release note or job summary."""
    yield f"## Latency: {code(regression.before)} → {code(regression.after)}"
    yield ""
    yield (
        ", ".join(f"**{count}** {verdict}" for verdict, count in counted(regression).items())
        + ". "
        + explanation(regression)
    )
    shown = [case for case in regression.cases if case.listed]
    if shown:
        yield ""
        yield "| verdict | change | interval | case | before | after | counts |"
        yield "| --- | ---: | --- | --- | ---: | ---: | --- |"
    for case in shown:
        counts = "; ".join(code(text) for text in case.counts)
        yield (
            f"| {case.verdict} | {_percent(case.change)} | {case.interval} | {code(case.case)} | "
            f"{case.before:.3g} | {case.after:.3g} | {counts} |"
        )
    for name, cases in (("No longer timed", regression.gone), ("Newly timed", regression.came)):
        if cases:
            yield ""
            yield f"{name}: {', '.join(map(code, cases))}"


def as_json(regression: Regression) -> str:
    return json.dumps({**asdict(regression), "verdicts": counted(regression)}, indent=1)


FORMATS: Mapping[str, Any] = {
    "text": lambda regression: "\n".join(as_text(regression)),
    "markdown": lambda regression: "\n".join(as_markdown(regression)),
    "json": as_json,
}
