"""How much faster than in float a lowered model runs, by operator and engine: a table in markdown, from timings."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from conformance.bench.results import Timing, TimingsFile, case_seconds
from conformance.markdown import code, escaped

from .gathered import family


@dataclass(frozen=True)
class Speed:
    """How a case compares with its float model: `speedup` is above 1 where it is faster."""

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
    """A case from the passes over it: the median, and the least and greatest of them."""
    made = [math.exp(-one.new.log_ratio) for one in passes]
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
        statistics.median(made),
        min(made),
        max(made),
        *case_seconds(passes),
        first.counts.weight_bytes,
        first.counts.kernels,
    )


def speeds(files: Iterable[TimingsFile]) -> list[Speed]:
    """Every case of some files, in order."""
    return [speed(case, passes) for file in files for case, passes in file.cases.items()]


def table(files: Sequence[TimingsFile]) -> Iterator[str]:
    """Yield the lines of a document: environments, then patterns down and engines with dtypes and threads across."""
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
    found = speeds(files)
    for name in sorted({one.family for one in found}):
        mine = [one for one in found if one.family == name]
        across = sorted({(one.engine, one.dtype, one.threads) for one in mine})
        yield ""
        yield f"## {escaped(name)}"
        yield ""
        heads = (f"{engine}, {dtype}, {threads}" for engine, dtype, threads in across)
        yield f"| pattern | layer | {' | '.join(map(escaped, heads))} |"
        yield f"| --- | --- | {' | '.join('---:' for _ in across)} |"
        for pattern, layer in sorted({(one.pattern, one.layer) for one in mine}):
            by = {
                (one.engine, one.dtype, one.threads): one.speedup
                for one in mine
                if (one.pattern, one.layer) == (pattern, layer)
            }
            cells = (f"{by[key]:.2f}" if key in by else "" for key in across)
            yield f"| {code(pattern)} | {code(layer)} | {' | '.join(cells)} |"
