"""The noise of timings on a machine: how much passes over a case differ, and what from.

A sample of cases is timed several times: twice with the same memory, and twice in children of the same process. The variance
of these timings is split as in a nested analysis of variance.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.bench.results import TimingsFile
from conformance.bench.timings import Repeat, log_ratios

PARTS: Mapping[str, str] = {
    "neighbours": "timed again in the same process, with the same memory",
    "layout": "built again in another child of the same process",
    "process": "in another process",
}
"""Parts of the noise, and what is done again where a part shows."""
OPENINGS, REPETITIONS = 2, 2
"""How often a case of the sample is opened in a pass, and timed after that."""


@dataclass(frozen=True)
class Spread:
    """Standard deviations of the logarithm of a ratio, over cases: the median and the ninth decile."""

    median: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.1%} ({self.most:.1%})"


@dataclass(frozen=True)
class Noise:
    """The noise of a file of timings.

    `passes` is the spread between passes over a case, `parts` that of each part. `frequency` is the share of the variance in
    the sample that follows the pace of the processor, `disturbed` the share of rounds that other processes disturbed and that
    were left out.
    """

    passes: Spread
    parts: Mapping[str, Spread]
    frequency: float | None
    disturbed: float


def noise(file: TimingsFile) -> Noise | None:
    """The noise of a file of timings; None if no case has two passes."""
    ratios = [log_ratios(passes) for passes in file.cases.values()]
    spreads = [np.std(values, ddof=1) for values in ratios if len(values) > 1]
    if not spreads:
        return None
    sample: dict[str, list[Repeat]] = {}
    for repeat in file.repeats:
        sample.setdefault(repeat.case, []).append(repeat)
    split = [of_case for repeats in sample.values() if (of_case := _parts(repeats))]
    parts = {name: _spread(of) for name, of in zip(PARTS, zip(*split, strict=True), strict=True)} if split else {}
    return Noise(_spread(spreads), parts, _explained(sample.values()), _disturbed(file))


def _spread(deviations: Sequence[Any]) -> Spread:
    return Spread(float(np.median(deviations)), float(np.quantile(deviations, 0.9)))


def _parts(repeats: Sequence[Repeat]) -> tuple[float, ...] | None:
    """The standard deviation of each part for one case; None for less than two passes.

    The mean square between groups has the variance of the group and its share of what varies inside of it, which is
    subtracted.
    """
    passes: dict[int, list[float]] = {}
    for repeat in sorted(repeats, key=lambda repeat: (repeat.opened, repeat.repetition)):
        passes.setdefault(repeat.number, []).append(repeat.log_ratio)
    whole = [ratios for ratios in passes.values() if len(ratios) == OPENINGS * REPETITIONS]
    if len(whole) < 2:
        return None
    values = np.reshape(whole, (-1, OPENINGS, REPETITIONS))
    means = values.mean(axis=2)
    again = values.var(axis=2, ddof=1).mean()
    layout = max(0.0, means.var(axis=1, ddof=1).mean() - again / REPETITIONS)
    process = max(0.0, means.mean(axis=1).var(ddof=1) - (layout + again / REPETITIONS) / OPENINGS)
    return tuple(float(np.sqrt(part)) for part in (again, layout, process))


def _explained(sample: Collection[Sequence[Repeat]]) -> float | None:
    """The share of the variance of ratios in all cases that a linear function of the logarithm of the pace explains."""
    cases = [np.array([(np.log(repeat.pace), repeat.log_ratio) for repeat in repeats]) for repeats in sample]
    points = np.concatenate([case - case.mean(axis=0) for case in cases]) if cases else np.zeros((1, 2))
    if points.std(axis=0).min() < 1e-12:
        return None
    return float(np.corrcoef(points, rowvar=False)[0, 1] ** 2)


def _disturbed(file: TimingsFile) -> float:
    disturbed = sum(timing.disturbed for timing in file.timings)
    builds = [build for timing in file.timings for build in (timing.new, timing.base) if build]
    kept = sum(len(rounds) for build in builds for rounds in build.quantized)
    return disturbed / (disturbed + kept)
