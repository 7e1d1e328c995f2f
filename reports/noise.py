"""The noise of timings on a machine: how much passes over a case differ, and what from.

A sample of cases is timed several times: twice with the same memory, and twice in children of the same process. The variance
of these timings is split as in a nested analysis of variance.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from conformance.bench.results import TimingsFile
from conformance.bench.timings import Repeat, log_ratios

PARTS: Mapping[str, str] = {
    "neighbours": "timed again in the same process, with the same memory",
    "layout": "built again in another child of the same process",
    "process": "in another process",
}
"""Parts of the noise, and what is done again where a part shows."""


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
    spreads = [statistics.stdev(values) for values in ratios if len(values) > 1]
    if not spreads:
        return None
    by_case: dict[str, list[Repeat]] = {}
    for repeat in file.repeats:
        by_case.setdefault(repeat.case, []).append(repeat)
    split = [parts for repeats in by_case.values() if (parts := _parts(repeats))]
    return Noise(
        _spread(spreads),
        {name: _spread([parts[name] for parts in split]) for name in PARTS} if split else {},
        _explained(by_case.values()),
        _disturbed(file),
    )


def _spread(deviations: Sequence[float]) -> Spread:
    if len(deviations) < 2:
        return Spread(deviations[0], deviations[0])
    return Spread(statistics.median(deviations), statistics.quantiles(deviations, n=10, method="inclusive")[-1])


def _parts(repeats: Sequence[Repeat]) -> dict[str, float] | None:
    """The standard deviation of each part for one case; None for less than two passes.

    The mean square between groups has the variance of the group and its share of what varies inside of it, which is
    subtracted.
    """
    passes: dict[int, dict[int, list[float]]] = {}
    for repeat in repeats:
        passes.setdefault(repeat.number, {}).setdefault(repeat.opened, []).append(repeat.log_ratio)
    whole = [[*openings.values()] for openings in passes.values() if len(openings) > 1]
    whole = [openings for openings in whole if all(len(values) > 1 for values in openings)]
    if len(whole) < 2:
        return None
    again = statistics.mean(statistics.variance(values) for openings in whole for values in openings)
    means = [[statistics.mean(values) for values in openings] for openings in whole]
    times = len(whole[0][0])
    layout = max(0.0, statistics.mean(map(statistics.variance, means)) - again / times)
    between = statistics.variance(statistics.mean(openings) for openings in means)
    process = max(0.0, between - (layout + again / times) / len(means[0]))
    return {name: math.sqrt(part) for name, part in zip(PARTS, (again, layout, process), strict=True)}


def _explained(cases: Iterable[Sequence[Repeat]]) -> float | None:
    """The share of the variance of ratios in all cases that a linear function of the logarithm of the pace explains."""
    points: list[tuple[float, float]] = []
    for repeats in cases:
        paces = [math.log(repeat.pace) for repeat in repeats]
        pace, ratio = statistics.mean(paces), statistics.mean(repeat.log_ratio for repeat in repeats)
        points += [(x - pace, repeat.log_ratio - ratio) for x, repeat in zip(paces, repeats, strict=True)]
    squares_x, squares_y = (sum(point[axis] ** 2 for point in points) for axis in (0, 1))
    if not squares_x or not squares_y:
        return None
    return sum(x * y for x, y in points) ** 2 / (squares_x * squares_y)


def _disturbed(file: TimingsFile) -> float:
    disturbed = sum(timing.disturbed for timing in file.timings)
    kept = sum(
        len(rounds)
        for timing in file.timings
        for builds in (timing.new, timing.base)
        if builds is not None
        for rounds in builds.quantized
    )
    return disturbed / (disturbed + kept)
