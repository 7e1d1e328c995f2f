"""The latency of conforming runs on every engine: `pytest conformance/test_benchmarks.py --bench quick`.

A test is one pass over one case. Worker processes time the lowered and the float model in turns. pytest-benchmark gets the
rounds of the lowered model by a clock that replays them; `extra_info` has the rounds of both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pytest

from conformance.bench.results import NotTimed
from conformance.bench.schedule import Bench, Item


class Replay:
    """A clock that advances by rounds that were timed elsewhere."""

    def __init__(self) -> None:
        self.now = 0.0
        self._rounds: Iterator[float] = iter(())

    def start(self, rounds: Sequence[float]) -> None:
        self._rounds = iter(rounds)

    def __call__(self) -> float:
        return self.now

    def round(self) -> None:
        self.now += next(self._rounds)


REPLAY = Replay()


@pytest.mark.benchmark(timer=REPLAY, warmup=False)
def test_latency(item: Item, bench: Bench, benchmark: Any) -> None:
    """A case is timed, or skipped with the reason."""
    timing = bench.timing(item)
    if isinstance(timing, NotTimed):
        pytest.skip(timing.reason)
    REPLAY.start(timing.new.quantized)
    benchmark.group = f"{item.run.claim.pattern}@{item.run.engine}"
    benchmark.extra_info |= asdict(timing)
    benchmark.pedantic(REPLAY.round, rounds=len(timing.new.quantized))
