"""Speed-ups of lowered models over float models, by operator and engine, as a document in markdown."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.bench.results import AIM, TimingsFile
from conformance.bench.timings import Machine, Timing, case_seconds, is_network, log_ratios
from conformance.markdown import code, escaped

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
    first = passes[0]
    run, _, engine = first.id.rpartition("@")
    _, pattern, dtype, _, layer, _ = run.split("/")
    quantized, floating = case_seconds(passes)
    least = machine.least_seconds(first.counts) if machine else None
    least_float = machine.least_seconds(first.counts, floating=True) if machine else None
    return Speed(
        case,
        pattern,
        family(pattern),
        dtype,
        layer,
        engine,
        first.threads,
        statistics.median(speedups),
        min(speedups),
        max(speedups),
        quantized,
        floating,
        first.counts.weight_bytes,
        first.counts.kernels,
        least / quantized if least else None,
        least_float / floating if least_float else None,
    )


def speeds(files: Iterable[TimingsFile]) -> list[Speed]:
    """The speed-up of every layer of these files, in order."""
    found = []
    for file in files:
        machines = {machine.threads: machine for machine in file.machines}
        layers = {case: passes for case, passes in file.cases.items() if not is_network(passes[0].id)}
        found += [speed(case, passes, machines.get(passes[0].threads)) for case, passes in layers.items()]
    return found


@dataclass(frozen=True)
class Summary:
    """The layers of a family of operators: for each engine how many are faster, even and slower than in float, the geometric
    mean of their speed-ups, and the median share of the machine's limit; and the engine that is the fastest."""

    family: str
    counts: Mapping[str, Mapping[str, int]]
    means: Mapping[str, float]
    shares: Mapping[str, float]
    best: str


def summaries(all_speeds: Sequence[Speed]) -> list[Summary]:
    """A summary of each family, by name."""
    found = []
    for name in sorted({speed.family for speed in all_speeds}):
        of_engine: dict[str, list[Speed]] = {}
        for speed in all_speeds:
            if speed.family == name:
                of_engine.setdefault(speed.engine, []).append(speed)
        means, shares = {}, {}
        for engine, cases in sorted(of_engine.items()):
            means[engine] = statistics.geometric_mean(case.speedup for case in cases)
            if known := [case.share for case in cases if case.share is not None]:
                shares[engine] = statistics.median(known)
        counts = {engine: Counter(case.direction for case in cases) for engine, cases in of_engine.items()}
        found.append(Summary(name, counts, means, shares, _best(of_engine)))
    return found


def _best(of_engine: Mapping[str, Sequence[Speed]]) -> str:
    """The engine with the least geometric mean of latencies over the layers that all engines have, or else with the greatest
    mean of speed-ups. Engines within `AIM` of the best one are named too."""
    latencies: dict[str, dict[tuple[str, str, str], float]] = {}
    for engine, cases in of_engine.items():
        fastest = latencies.setdefault(engine, {})
        for case in cases:
            key = case.pattern, case.layer, case.threads
            fastest[key] = min(case.quantized_seconds, fastest.get(key, math.inf))
    common = set.intersection(*(set(fastest) for fastest in latencies.values()))
    if common:
        means = {
            engine: statistics.geometric_mean(fastest[key] for key in common) for engine, fastest in latencies.items()
        }
    else:
        means = {
            engine: 1 / statistics.geometric_mean(case.speedup for case in cases) for engine, cases in of_engine.items()
        }
    least = min(means.values())
    return ", ".join(engine for engine, mean in sorted(means.items(), key=_second) if mean <= least * (1 + AIM))


def _second(pair: tuple[str, float]) -> float:
    return pair[1]


def document(files: Sequence[TimingsFile]) -> Iterator[str]:
    """Yield the lines of a document: environments, the summary by family, networks, and a table for each family with a row
    for each pattern and layer and a column for each engine, dtype and number of threads."""
    yield "# How much faster than in float"
    yield ""
    yield (
        "A figure is the latency of the float model by that of the lowered one: above 1 the lowered one is faster. It is the "
        "median of several passes, each a process of its own, of the fastest rounds of either, which are called in turn. "
        "Quantizing the input and dequantizing the output are part of it. What does not conform is not timed."
    )
    for file in files:
        yield ""
        yield f"- {environment(file)}"
    all_speeds = speeds(files)
    if all_speeds:
        yield from _summary(all_speeds)
    yield from end_to_end.document(files)
    for name in sorted({speed.family for speed in all_speeds}):
        yield from _table(name, [speed for speed in all_speeds if speed.family == name])


def environment(file: TimingsFile) -> str:
    """Versions, machine, passes, noise and limits of a file, as a line of markdown."""
    head = file.header
    passes = [len(passes) for passes in file.cases.values()]
    parts = [
        f"{escaped(file.finished)}: torch {escaped(head['torch'])}, {escaped(head['cpu'])} ({escaped(head['isa'])}, "
        f"{head['cores']} cores), {escaped(head['os'])}"
    ]
    if passes:
        parts.append(f"{len(passes)} cases, {min(passes)} to {max(passes)} passes over each")
    if measured := noise(file):
        parts.append(f"passes differ by {measured.passes.median:.1%} (median of standard deviations)")
    parts += [
        f"limits with {'one thread' if machine.threads == '1' else 'all threads'}: {machine.float_rate / 1e9:.0f} GFLOP/s of "
        f"float, {machine.int8_rate / 1e9:.0f} GOP/s of int8"
        for machine in file.machines
    ]
    return "; ".join(parts)


def _summary(all_speeds: Sequence[Speed]) -> Iterator[str]:
    engines = sorted({speed.engine for speed in all_speeds})
    yield ""
    yield "## Summary"
    yield ""
    yield (
        f"Layers that are faster, even (within {AIM:.0%}) and slower than in float, and the geometric mean of their "
        "speed-ups. The fastest engine is that of the least latency over the layers that all engines have; others within "
        f"{AIM:.0%} of it are named too. The limit is what the machine can do: the products of a layer at the measured rate "
        "of large products of int8, or its bytes at the measured bandwidth, whichever takes longer; the share is a median."
    )
    yield ""
    yield f"| operators | {' | '.join(map(escaped, engines))} | fastest | share of the limit |"
    yield f"| --- | {' | '.join('---' for _ in engines)} | --- | --- |"
    for summary in summaries(all_speeds):
        cells = []
        for engine in engines:
            counts = summary.counts.get(engine)
            numbers = ", ".join(f"{counts[word]} {word}" for word in DIRECTIONS if counts.get(word)) if counts else ""
            cells.append(f"**{summary.means[engine]:.2f}×**: {numbers}" if counts else "")
        shares = ", ".join(f"{engine} {share:.0%}" for engine, share in summary.shares.items())
        yield f"| {escaped(summary.family)} | {' | '.join(cells)} | {escaped(summary.best)} | {shares} |"


def _table(name: str, of_family: Sequence[Speed]) -> Iterator[str]:
    across = sorted({(speed.engine, speed.dtype, speed.threads) for speed in of_family})
    yield ""
    yield f"## {escaped(name)}"
    yield ""
    heads = (f"{engine}, {dtype}, {threads}" for engine, dtype, threads in across)
    yield f"| pattern | layer | {' | '.join(map(escaped, heads))} |"
    yield f"| --- | --- | {' | '.join('---:' for _ in across)} |"
    for pattern, layer in sorted({(speed.pattern, speed.layer) for speed in of_family}):
        by_column = {
            (speed.engine, speed.dtype, speed.threads): speed.speedup
            for speed in of_family
            if (speed.pattern, speed.layer) == (pattern, layer)
        }
        cells = (f"{by_column[key]:.2f}" if key in by_column else "" for key in across)
        yield f"| {code(pattern)} | {code(layer)} | {' | '.join(cells)} |"
