"""The latency of conforming runs on every engine: `pytest conformance/test_benchmarks.py --bench quick`.

A test is a case. Worker processes time the lowered and the float model in turns, in several passes, before the first test.
pytest-benchmark gets the passes over the lowered model by a clock that replays them; `extra_info` has the rounds of both.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from conformance.bench.results import PASSES

if TYPE_CHECKING:  # loads scipy, which other invocations do not need
    from conformance.bench.schedule import Bench, Case


class Replay:
    """A clock that advances by passes that were timed elsewhere."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, rounds: Iterator[float]) -> None:
        self.now += next(rounds)


REPLAY = Replay()


@pytest.mark.benchmark(timer=REPLAY, warmup=False)
def test_latency(case: "Case", bench: "Bench", benchmark: Any) -> None:
    """A case was timed, or is skipped with the reason."""
    if reason := bench.reason(case):
        pytest.skip(reason)
    passes = bench.passes(case)
    if not passes:
        pytest.skip("the budget was spent before its first pass")
    rounds = iter([timing.new.quantized_seconds for timing in passes])
    benchmark.group = case.group
    benchmark.extra_info |= {PASSES: [asdict(timing) for timing in passes]}
    benchmark.pedantic(REPLAY.advance, (rounds,), rounds=len(passes))
