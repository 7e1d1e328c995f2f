"""Files of timings with invented latencies, for tests of readers and reports."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.bench.results import Writer
from conformance.bench.timings import Builds, Counts, LayerTime, Machine, Memory, NotTimed, Repeat, Timing

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
    "looks": [3, 5],
    "aim": 0.03,
    "budget": 600,
    "against": None,
}
COUNTS = Counts(("quantized.linear",), 1, 1, 600_000, None, 18_000_000, 700_000)
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
        1e-6,
    )


def rounds(ratio: float) -> Builds:
    """Four rounds at each of two placements, in seconds, of a float model and of a lowered model whose latency is `ratio`
    times as long."""
    floating = tuple(
        tuple(FLOAT_SECONDS * place * (1 + 0.01 * math.sin(number)) for number in range(4)) for place in (1, 1.01)
    )
    return Builds(tuple(tuple(ratio * seconds for seconds in placed) for placed in floating), floating)


def network(
    number: int = 0,
    form: str = "eager@x86",
    ratio: float = 0.5,
    memory: Memory | None = None,
    layers: tuple[LayerTime, ...] = (),
) -> Timing:
    """A pass over a network whose latencies have this ratio to float."""
    run_id = f"networks/resnet18/batch_1/{form}"
    return Timing(run_id, "1", number, "network", rounds(ratio), None, COUNTS, 0, 1e-6, memory, layers)


def write(
    path: Path,
    timings: Iterable[Timing],
    beside: Iterable[NotTimed | Repeat | Machine] = (),
    header: Mapping[str, Any] = HEADER,
    finished: str = "2026-01-01T00:00:00+00:00",
) -> Path:
    writer = Writer(path, header)
    for timing in timings:
        writer.add(timing)
    for line in beside:
        writer.add(line)
    writer.finish(finished)
    return path


def passes(name: str, ratios: Sequence[float], **options: Any) -> list[Timing]:
    """One pass of a case for each ratio."""
    return [timing(number, name, ratio, **options) for number, ratio in enumerate(ratios)]
