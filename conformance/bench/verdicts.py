"""Verdicts on changes of latency, which hold although passes are added until a case is settled.

Each pass over a case is one observation: the logarithm of a ratio of latencies. A case is *slower* if its ratio grew by more
than a margin, by a t-test on the passes, and *faster* if it shrank by more. It is the *same* if it changed by less than the
margin in either direction (two one-sided tests: Schuirmann 1987). Otherwise it is *inconclusive*. p-values of all cases are
adjusted for the false discovery rate (Benjamini and Hochberg 1995): at most this share of the verdicts slower and faster is
expected to be wrong.

Two builds that are timed in turns are tested after each of the planned numbers of passes, the *looks*, and the passes end
when the verdict is there. The least p-value of all looks, multiplied by their number, is a p-value however it was chosen when
to stop (Bonferroni's inequality; group sequential tests: Pocock 1977, Lan and DeMets 1983). Passes over one build end when
their spread is small enough to tell a change from none (Chow and Robbins 1965), whatever their mean is; so the means of two
nights are as if the numbers of passes had been fixed, and they are compared by Welch's t-test.

Two nights find the machine in different states. How much it has drifted is estimated by float models, which the lowered
models do not share. The latency of one float model varies from process to process by a few percent, more than that of most
lowered models, so the drift of all cases with float models of one kind is one: the median of theirs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

RATE = 0.05
"""False discovery rate of the verdicts slower and faster."""
CONFIDENCE = 0.95
LOOKS = (5, 8, 12, 18, 27, 40, 60)
"""Numbers of passes after which a case may be settled: each about half as many again as the one before."""
FEWEST = 3
"""Least number of passes that can be compared."""
VERDICTS = ("slower", "faster", "inconclusive", "same")
POWER = 0.95
"""Probability with which two nights of an unchanged case are to be found the same."""

Array = Any


@dataclass(frozen=True)
class Observed:
    """The passes over a case, at least `FEWEST`: for two builds that were timed in turns the logarithms of the ratio of their
    latencies as `new`, without `old`; for two nights those of latencies before and after. `drift` is how much slower the
    machine has become meanwhile, as a logarithm, and `drift_error` the standard error of that."""

    new: Sequence[float]
    old: Sequence[float] | None = None
    drift: float = 0.0
    drift_error: float = 0.0


@dataclass(frozen=True)
class Judged:
    """The relative change of a case with its interval, the adjusted p-value `q`, and the verdict."""

    change: float
    low: float
    high: float
    q: float
    verdict: str


@dataclass(frozen=True)
class _Means:
    """Differences of means with their standard errors and degrees of freedom, one of each case."""

    mean: Array
    error: Array
    freedom: Array

    def p_greater(self, shift: float) -> Array:
        """p-values of one-sided t-tests that the differences are greater than `shift`; 1 where all passes are equal."""
        with np.errstate(divide="ignore", invalid="ignore"):
            p = stats.t.sf((self.mean - shift) / self.error, self.freedom)
        return np.where(self.error > 0, p, 1.0)

    def p_less(self, shift: float) -> Array:
        return _Means(-self.mean, self.error, self.freedom).p_greater(-shift)

    def half_width(self, confidence: float) -> Array:
        """Half of the widths of confidence intervals."""
        return stats.t.isf((1 - confidence) / 2, self.freedom) * self.error


def _paired(cases: Sequence[Sequence[float]]) -> _Means:
    sizes = np.array([len(values) for values in cases])
    mean = np.array([np.mean(values) for values in cases])
    spread = np.array([np.std(values, ddof=1) for values in cases])
    return _Means(mean, spread / np.sqrt(sizes), sizes - 1)


def _apart(cases: Sequence[Observed]) -> _Means:
    """Means of the new passes less those of the old ones and the drift, with the degrees of freedom of Welch and
    Satterthwaite."""
    old, new = _paired([case.old or () for case in cases]), _paired([case.new for case in cases])
    squares = old.error**2 + new.error**2
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = squares**2 / (old.error**4 / old.freedom + new.error**4 / new.freedom)
    drift, drift_error = (np.array([getattr(case, name) for case in cases]) for name in ("drift", "drift_error"))
    errors = np.sqrt(squares + drift_error**2)
    return _Means(new.mean - old.mean - drift, errors, np.where(squares > 0, freedom, 1))


def judge(cases: Sequence[Observed], looks: Sequence[int], margin: float) -> list[Judged]:
    """Judge all cases together. `looks` are the planned numbers of passes of builds that were timed in turns."""
    if not cases:
        return []
    bound = math.log1p(margin)
    paired = cases[0].old is None
    p_changed, p_same = np.ones(len(cases)), np.ones(len(cases))
    factor = len(looks) if paired else 1
    for look in looks if paired else (None,):
        at = [number for number, case in enumerate(cases) if look is None or len(case.new) >= look]
        if not at:
            continue
        means = _apart(cases) if look is None else _paired([cases[number].new[:look] for number in at])
        changed = 2 * np.minimum(means.p_greater(bound), means.p_less(-bound))
        same = np.maximum(means.p_less(bound), means.p_greater(-bound))
        p_changed[at] = np.minimum(p_changed[at], factor * changed)
        p_same[at] = np.minimum(p_same[at], factor * same)
    means = _paired([case.new for case in cases]) if paired else _apart(cases)
    half = means.half_width(1 - (1 - CONFIDENCE) / factor)
    q_changed, q_same = (stats.false_discovery_control(values) for values in (p_changed, p_same))
    change, low, high = ([*map(math.expm1, x)] for x in (means.mean, means.mean - half, means.mean + half))
    verdicts = map(_verdict, q_changed, q_same, change)
    return [*map(Judged, change, low, high, q_changed.tolist(), verdicts)]


def drift(changes: Sequence[float]) -> tuple[float, float]:
    """The drift of the machine from the changes of float models of one kind, as logarithms: their median, and its standard
    error, which is sqrt(pi/2) that of a mean."""
    error = float(np.std(changes, ddof=1)) / math.sqrt(len(changes)) * math.sqrt(math.pi / 2)
    return float(np.median(changes)), error


def _verdict(q_changed: float, q_same: float, change: float) -> str:
    if q_changed <= RATE:
        return "slower" if change > 0 else "faster"
    return "same" if q_same <= RATE else "inconclusive"


def needed(values: Sequence[float], margin: float, *, paired: bool) -> float:
    """About how many passes settle a case, by the spread of those it has.

    For two builds, their mean has to be told from the nearest bound; for one, an unchanged second night of as many passes has
    to be found the same with a probability of `POWER`.
    """
    bound = math.log1p(margin)
    means = _paired([values])
    distance = abs(abs(float(means.mean[0])) - bound) if paired else bound / math.sqrt(2)
    freedom = len(values) - 1
    quantiles = float(stats.t.isf(RATE, freedom) + stats.t.isf(1 - POWER, freedom))
    if distance == 0:
        return math.inf
    return float((quantiles * float(means.error[0]) * math.sqrt(len(values)) / distance) ** 2)


def precise(values: Sequence[float], margin: float) -> bool:
    """Whether passes over one build are enough. It depends on their spread alone."""
    return needed(values, margin, paired=False) <= len(values)
