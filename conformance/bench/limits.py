"""What this machine can do at most: products of float and of 8-bit matrices, and copies of memory."""

import time
import timeit
from collections.abc import Callable

import torch

from conformance.engines.registry import engine

from .timings import Machine

SIDE = 768
"""Rows and columns of the matrices, which fit no inner cache; twice as many are as fast."""
REPETITIONS = 7
SIZES = tuple(1 << exponent for exponent in range(14, 27, 2))
"""Bytes that a copy reads and writes together: from a half of an innermost cache to beyond the outermost one."""
COPY_SECONDS = 0.3e-3
"""Least seconds of a measured series of copies."""
ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")
"""Engines whose products of integers are tried; the fastest counts."""


def fastest(call: Callable[[], object], times: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of a call: the least mean of several series of `times` calls."""
    call()
    return min(timeit.repeat(call, timer=clock, repeat=REPETITIONS, number=times)) / times


def measured(threads: str) -> Machine:
    """Measure with the number of threads that torch has now, of which `threads` is the name."""
    operations = 2 * SIDE**3
    left, right, out = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE), torch.empty(SIDE, SIDE)
    float_seconds = fastest(lambda: torch.mm(left, right, out=out), 1)
    int8_seconds = min(_int8_seconds(name) for name in ENGINES if engine(name).unavailable() is None)
    return Machine(threads, operations / float_seconds, operations / int8_seconds, _bandwidth())


def _int8_seconds(name: str) -> float:
    """Seconds of a product of 8-bit matrices by an engine's own kernel."""
    with engine(name).scope():
        data = torch.quantize_per_tensor(torch.rand(SIDE, SIDE), 1 / 128, 0, torch.quint8)
        weight = torch.quantize_per_tensor(torch.rand(SIDE, SIDE), 1 / 128, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(weight, None)
        return fastest(lambda: torch.ops.quantized.linear(data, packed, 1.0, 0), 1)


def _bandwidth() -> dict[str, float]:
    found = {}
    for size in SIZES:
        source = torch.ones(size // 2, dtype=torch.uint8)
        target = torch.empty_like(source)
        once = fastest(lambda: target.copy_(source), 1)  # noqa: B023  (called in this iteration only)
        times = max(1, round(COPY_SECONDS / once))
        found[str(size)] = size / fastest(lambda: target.copy_(source), times)  # noqa: B023
    return found
