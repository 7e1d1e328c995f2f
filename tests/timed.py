"""Files of timings with invented latencies, for tests of readers and reports."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.bench.results import Builds, Counts, NotTimed, Timing, Writer

HEADER: Mapping[str, Any] = {
    "suite": "0.1.0",
    "torch": "2.13.0",
    "python": "3.11.7",
    "os": "Linux",
    "arch": "x86_64",
    "cpu": "A CPU",
    "isa": "avx2",
    "isa_limit": None,
    "git": "0123456789ab",
    "backends": ["fbgemm"],
    "selection": [],
    "cores": 2,
    "form": "quick",
    "passes": 5,
    "against": None,
}
COUNTS = Counts(("quantized.linear",), 1, 1, 600_000, None)
FLOAT_SECONDS = 0.002


def timing(
    number: int = 0,
    name: str = "nn.Linear",
    ratio: float = 0.5,
    base: float | None = None,
    counts: Counts = COUNTS,
    threads: str = "1",
) -> Timing:
    """A pass whose latencies have this ratio to float; `base` is the ratio of another build, if there is one."""
    return Timing(
        f"fbgemm/{name}/static-quint8/ptq/bert_projection_16/bench@x86",
        threads,
        number,
        "small",
        rounds(ratio),
        None if base is None else rounds(base),
        counts,
        0,
    )


def rounds(ratio: float) -> Builds:
    """Eight rounds, in seconds, of a float model and of a lowered model whose latency is `ratio` times as long."""
    floating = tuple(FLOAT_SECONDS * (1 + 0.01 * math.sin(number)) for number in range(8))
    return Builds(tuple(ratio * seconds for seconds in floating), floating)


def write(
    path: Path,
    timings: Iterable[Timing],
    not_timed: Iterable[NotTimed] = (),
    header: Mapping[str, Any] = HEADER,
    finished: str = "2026-01-01T00:00:00+00:00",
) -> Path:
    writer = Writer(path, header)
    for timing in timings:
        writer.add(timing)
    for case in not_timed:
        writer.add(case)
    writer.finish(finished)
    return path


def passes(name: str, ratios: Sequence[float], **options: Any) -> list[Timing]:
    """One pass of a case for each ratio."""
    return [timing(number, name, ratio, **options) for number, ratio in enumerate(ratios)]
