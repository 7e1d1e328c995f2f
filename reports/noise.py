"""The noise of timings on a machine: how much passes over a case differ, and how many rounds other processes disturbed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.bench.results import TimingsFile
from conformance.bench.timings import log_ratios


@dataclass(frozen=True)
class Noise:
    """The noise of a file of timings.

    `median` and `most` are the median and the ninth decile, over cases, of the standard deviation of the logarithm of the
    ratio between passes. `disturbed` is the share of rounds that other processes disturbed and that were left out.
    """

    median: float
    most: float
    disturbed: float


def noise(file: TimingsFile) -> Noise | None:
    """The noise of a file of timings; None if no case has two passes."""
    ratios = [log_ratios(passes) for passes in file.cases.values()]
    spreads: Sequence[Any] = [np.std(values, ddof=1) for values in ratios if len(values) > 1]
    if not spreads:
        return None
    return Noise(float(np.median(spreads)), float(np.quantile(spreads, 0.9)), _disturbed(file))


def _disturbed(file: TimingsFile) -> float:
    disturbed = sum(timing.disturbed for timing in file.timings)
    builds = [build for timing in file.timings for build in (timing.new, timing.base) if build]
    kept = sum(len(rounds) for build in builds for rounds in build.quantized)
    return disturbed / (disturbed + kept)
