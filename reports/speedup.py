"""Speed-ups of lowered models over float models, by operator and engine, as a document in markdown."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from conformance.bench.results import AIM, TimingsFile
from conformance.bench.timings import Machine, Timing, case_seconds, is_network, log_ratios
from conformance.markdown import code, escaped, table

from . import end_to_end
from .load import family
from .noise import noise

DIRECTIONS = ("faster", "even", "slower")


@dataclass(frozen=True)
class Speed:
    """A case compared with its float model. `speedup` is greater than 1 if the lowered model is faster; `low` and `high` are
    its minimum and maximum over passes. `share` is what part of the machine's limit the lowered model reaches, `float_share`
    the float model; None where the work or the limit is unknown."""

    case: str
    pattern: str
    family: str
    dtype: str
    layer: str
    engine: str
    threads: str
    speedup: float
    low: float
    high: float
    quantized_seconds: float
    float_seconds: float
    weight_bytes: int
    kernels: tuple[str, ...]
    share: float | None = None
    float_share: float | None = None

    @property
    def direction(self) -> str:
        """Whether the lowered model is faster or slower by more than `AIM`, or even."""
        if abs(math.log(self.speedup)) <= math.log1p(AIM):
            return "even"
        return "faster" if self.speedup > 1 else "slower"


def speed(case: str, passes: Sequence[Timing], machine: Machine | None = None) -> Speed:
    """The speed-up of a case: median, minimum and maximum over its passes. `machine` has the limits of the machine with its
    number of threads."""
    speedups = [math.exp(-logarithm) for logarithm in log_ratios(passes)]
    counts, (run, _, engine) = passes[0].counts, passes[0].id.rpartition("@")
    _, pattern, dtype, _, layer, _ = run.split("/")
    seconds = case_seconds(passes)
    least = [machine.least_seconds(counts, floating=floating) if machine else None for floating in (False, True)]
    shares = [limit / taken if limit else None for limit, taken in zip(least, seconds, strict=True)]
    figures = statistics.median(speedups), min(speedups), max(speedups), *seconds, counts.weight_bytes, counts.kernels
    return Speed(case, pattern, family(pattern), dtype, layer, engine, passes[0].threads, *figures, *shares)


def speeds(files: Iterable[TimingsFile]) -> list[Speed]:
    """The speed-up of every layer of these files, in order."""
    return [
        speed(case, passes, next((machine for machine in file.machines if machine.threads == passes[0].threads), None))
        for file in files
        for case, passes in file.cases.items()
        if not is_network(passes[0].id)
    ]


@dataclass(frozen=True)
class Summary:
    """The layers of a family of operators: for each engine how many are faster, even and slower than in float, the geometric
    mean of their speed-ups, and the median share of the machine's limit; and the engine that is the fastest."""

    family: str
    counts: Mapping[str, Mapping[str, int]]
    means: Mapping[str, float]
    shares: Mapping[str, float]
    best: str

    def cell(self, engine: str) -> str:
        """The mean and the counts on an engine, in markdown; empty without layers."""
        if engine not in self.means:
            return ""
        counts = self.counts[engine]
        numbers = ", ".join(f"{counts[word]} {word}" for word in DIRECTIONS if counts[word])
        return f"**{self.means[engine]:.2f}×**: {numbers}"


def summaries(all_speeds: Iterable[Speed]) -> list[Summary]:
    """A summary of each family, by name."""
    found = []
    for name, of_family in by("family", all_speeds).items():
        of_engine = by("engine", of_family)
        counts = {engine: Counter(case.direction for case in cases) for engine, cases in of_engine.items()}
        known = {engine: [case.share for case in cases if case.share] for engine, cases in of_engine.items()}
        shares = {engine: statistics.median(of) for engine, of in known.items() if of}
        found.append(Summary(name, counts, _means(of_engine), shares, _best(of_engine)))
    return found


def by(field: str, all_speeds: Iterable[Speed]) -> dict[str, list[Speed]]:
    """The cases by the value of a field, in its order."""
    key = attrgetter(field)
    return {value: [*of] for value, of in groupby(sorted(all_speeds, key=key), key)}


def _means(of_engine: Mapping[str, Sequence[Speed]]) -> dict[str, float]:
    """The geometric mean of the speed-ups on each engine."""
    return {engine: statistics.geometric_mean(case.speedup for case in cases) for engine, cases in of_engine.items()}


def _best(of_engine: Mapping[str, Sequence[Speed]]) -> str:
    """The engine with the least geometric mean of latencies over the layers that all engines have, or else with the greatest
    mean of speed-ups. Engines within `AIM` of the best one are named too."""
    latencies: dict[str, dict[tuple[str, str, str], float]] = {engine: {} for engine in of_engine}
    for engine, fastest in latencies.items():
        for case in of_engine[engine]:
            key = case.pattern, case.layer, case.threads
            fastest[key] = min(case.quantized_seconds, fastest.get(key, math.inf))
    common = set.intersection(*map(set, latencies.values()))
    means = {
        engine: statistics.geometric_mean(fastest[key] for key in common) if common else 1 / mean
        for (engine, mean), fastest in zip(_means(of_engine).items(), latencies.values(), strict=True)
    }
    limit = min(means.values()) * (1 + AIM)
    return ", ".join(
        engine for mean, engine in sorted((mean, engine) for engine, mean in means.items()) if mean <= limit
    )


def document(files: Sequence[TimingsFile]) -> Iterator[str]:
    """Yield the lines of a document: environments, the summary by family, networks, and a table for each family with a row
    for each pattern and layer and a column for each engine, dtype and number of threads."""
    yield from (
        "# How much faster than in float",
        "",
        "A figure is the latency of the float model by that of the lowered one: above 1 the lowered one is faster. It is the "
        "median of several passes, each a process of its own, of the fastest rounds of either, which are called in turn. "
        "Quantizing the input and dequantizing the output are part of it. What does not conform is not timed.",
    )
    for file in files:
        yield from ("", f"- {environment(file)}")
    all_speeds = speeds(files)
    if all_speeds:
        yield from _summary(all_speeds)
    yield from end_to_end.document(files)
    for name, of_family in by("family", all_speeds).items():
        yield from _family(name, of_family)


def environment(file: TimingsFile) -> str:
    """Versions, machine, passes, noise and limits of a file, as a line of markdown."""
    head = {name: escaped(str(value)) for name, value in file.header.items()}
    passes = [len(passes) for passes in file.cases.values()]
    parts = [
        "{finished}: torch {torch}, {cpu} ({isa}, {cores} cores), {os}".format(finished=escaped(file.finished), **head)
    ]
    if passes:
        parts.append(f"{len(passes)} cases, {min(passes)} to {max(passes)} passes over each")
    if measured := noise(file):
        parts.append(f"passes differ by {measured.median:.1%} (median of standard deviations)")
    parts += [
        f"limits with {'one thread' if machine.threads == '1' else 'all threads'}: {machine.float_rate / 1e9:.0f} GFLOP/s of "
        f"float, {machine.int8_rate / 1e9:.0f} GOP/s of int8"
        for machine in file.machines
    ]
    return "; ".join(parts)


def _summary(all_speeds: Sequence[Speed]) -> Iterator[str]:
    engines = [*by("engine", all_speeds)]
    yield from (
        "",
        "## Summary",
        "",
        f"Layers that are faster, even (within {AIM:.0%}) and slower than in float, and the geometric mean of their "
        "speed-ups. The fastest engine is that of the least latency over the layers that all engines have; others within "
        f"{AIM:.0%} of it are named too. The limit is what the machine can do: the products of a layer at the measured rate "
        "of large products of int8, or its bytes at the measured bandwidth, whichever takes longer; the share is a median.",
        "",
    )
    rows = []
    for summary in summaries(all_speeds):
        shares = ", ".join(f"{engine} {share:.0%}" for engine, share in summary.shares.items())
        cells = [summary.cell(engine) for engine in engines]
        rows.append([escaped(summary.family), *cells, escaped(summary.best), shares])
    yield from table(["operators", *map(escaped, engines), "fastest", "share of the limit"], rows)


def _family(name: str, of_family: Sequence[Speed]) -> Iterator[str]:
    across = sorted({(speed.engine, speed.dtype, speed.threads) for speed in of_family})
    figures = {
        (speed.pattern, speed.layer, speed.engine, speed.dtype, speed.threads): f"{speed.speedup:.2f}"
        for speed in of_family
    }
    rows = [
        [code(pattern), code(layer), *(figures.get((pattern, layer, *column), "") for column in across)]
        for pattern, layer in sorted({(speed.pattern, speed.layer) for speed in of_family})
    ]
    yield from ("", f"## {escaped(name)}", "")
    titles = ["pattern", "layer", *(escaped(", ".join(column)) for column in across)]
    yield from table(titles, rows, range(2, len(titles)))
