"""Speed-ups of lowered models over float models, by operator and engine, as tables in markdown."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from conformance.bench.results import Timing, TimingsFile, case_seconds
from conformance.markdown import code, escaped

from .load import family


@dataclass(frozen=True)
class Speed:
    """A case compared with its float model. `speedup` is greater than 1 if the lowered model is faster; `low` and `high` are
    its minimum and maximum over passes."""

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


def speed(case: str, passes: Sequence[Timing]) -> Speed:
    """The speed-up of a case: median, minimum and maximum over its passes."""
    speedups = [math.exp(-timing.new.log_ratio) for timing in passes]
    first = passes[0]
    run, _, engine = first.id.rpartition("@")
    _, pattern, dtype, _, layer, _ = run.split("/")
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
        *case_seconds(passes),
        first.counts.weight_bytes,
        first.counts.kernels,
    )


def speeds(files: Iterable[TimingsFile]) -> list[Speed]:
    """The speed-up of every case of these files, in order."""
    return [speed(case, passes) for file in files for case, passes in file.cases.items()]


def table(files: Sequence[TimingsFile]) -> Iterator[str]:
    """Yield the lines of a document: environments, then a table for each family, with a row for each pattern and layer and a
    column for each engine, dtype and number of threads."""
    yield "# How much faster than in float"
    yield ""
    yield (
        "A figure is the latency of the float model by that of the lowered one: above 1 the lowered one is faster. It is the "
        "median of several passes, each a process of its own, of the fastest rounds of either, which are called in turn. "
        "Quantizing the input and dequantizing the output are part of it. What does not conform is not timed."
    )
    for file in files:
        head = file.header
        yield ""
        yield (
            f"- {escaped(file.finished)}: torch {escaped(head['torch'])}, {escaped(head['cpu'])} ({escaped(head['isa'])}, "
            f"{head['cores']} cores), {escaped(head['os'])}, {head['passes']} passes"
        )
    all_speeds = speeds(files)
    for name in sorted({speed.family for speed in all_speeds}):
        of_family = [speed for speed in all_speeds if speed.family == name]
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
