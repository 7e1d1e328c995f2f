"""How models are timed: in turns, in rounds that are long enough, and with what can be counted beside it."""

import gc
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conformance.bench import counters
from conformance.bench.timer import (
    FEWEST_ROUNDS,
    MOST_SECONDS,
    PATIENCE_SECONDS,
    ROUND_SECONDS,
    WARM_UP_SECONDS,
    Pace,
    Timed,
    calls_a_round,
    interleaved,
)
from conformance.cases.claims import backend
from conformance.cases.runs import benchmarks
from conformance.engines.registry import engine
from conformance.models import fx


class Clock:
    """A clock that goes on when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []

    def __call__(self) -> float:
        return self.now

    def taking(self, name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            self.now += seconds
            self.order.append(name)

        return call


def pace(clock: Clock, *references: float) -> Pace:
    """One whose reference takes these seconds, and then as many as the last."""
    taken = [*references] or [1e-6]

    def reference() -> None:
        clock.now += taken.pop(0) if len(taken) > 1 else taken[0]

    made = Pace(reference, clock)
    made.now()
    return made


def test_each_round_has_both_and_either_is_first_as_often() -> None:
    clock = Clock()
    calls = clock.taking("quick", 1e-3), clock.taking("slow", 2e-3)
    (quick, slow), disturbed = interleaved(calls, [1, 1], pace(clock), 10)
    assert quick == pytest.approx([1e-3] * 10)
    assert slow == pytest.approx([2e-3] * 10)
    assert disturbed == 0
    timed = clock.order[-20:]
    assert timed == ["quick", "slow", "slow", "quick"] * 5


def test_a_round_of_something_short_has_many_calls() -> None:
    clock = Clock()
    call = clock.taking("short", ROUND_SECONDS / 50)
    assert calls_a_round(call, clock) == 50
    assert clock.now >= WARM_UP_SECONDS
    clock.order.clear()
    ((first, *_),), _ = interleaved([call], [50], pace(clock), 3)
    assert len(clock.order) == 151
    assert first == pytest.approx(ROUND_SECONDS / 50), "the mean of its calls"


def test_something_long_has_fewer_rounds() -> None:
    clock = Clock()
    (rounds,), _ = interleaved([clock.taking("long", MOST_SECONDS / 4)], [1], pace(clock), 40)
    assert len(rounds) == FEWEST_ROUNDS


class Neighbour(Clock):
    """A machine on which everything takes half as long again from one time to another."""

    def __init__(self, start: float, end: float) -> None:
        super().__init__()
        self.start, self.end = start, end

    def taking(self, name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            self.now += seconds * (1.5 if self.start <= self.now < self.end else 1)
            self.order.append(name)

        return call


def test_rounds_in_which_something_else_slows_the_machine_are_left_out_and_made_up_for() -> None:
    clock = Neighbour(0.01, 0.03)
    call = clock.taking("call", ROUND_SECONDS)
    made = Pace(clock.taking("reference", 1e-6), clock)
    made.now()
    (rounds,), disturbed = interleaved([call], [1], made, 60)
    assert rounds == pytest.approx([ROUND_SECONDS] * 60)
    assert disturbed == pytest.approx(0.02 / (1.5 * ROUND_SECONDS), abs=2)


def test_a_machine_that_is_disturbed_all_the_time_is_taken_as_it_is() -> None:
    clock = Neighbour(0.0, math.inf)
    made = Pace(clock.taking("reference", 1e-6), clock)
    made.fastest = 1.5e-6 / 1.2
    (rounds,), disturbed = interleaved([clock.taking("call", 1e-3)], [1], made, 100)
    assert len(rounds) >= FEWEST_ROUNDS
    assert rounds == pytest.approx([1.5e-3] * len(rounds))
    assert clock.now == pytest.approx(PATIENCE_SECONDS, rel=0.02)
    for _ in range(100):
        made.forget()
    (rounds,), disturbed = interleaved([clock.taking("call", 1e-3)], [1], made, 20)
    assert (len(rounds), disturbed) == (20, 0), "slower for good"


def test_no_garbage_is_collected_while_timing() -> None:
    seen = []
    interleaved([lambda: seen.append(gc.isenabled())], [1], Pace(lambda: None), 2)
    assert not any(seen)
    assert gc.isenabled()


def run_of(pattern: str, backend_name: str = "fbgemm", on: str = "x86") -> object:
    return next(run for run in benchmarks(backend(backend_name), [on], ["small"]) if run.claim.pattern == pattern)


def test_what_is_timed_is_the_lowered_and_the_float_model() -> None:
    run = run_of("nn.Linear+nn.ReLU")
    with engine("x86").scope(), fx.quiet(), torch.no_grad():
        timed = Timed.of(run)  # type: ignore[arg-type]
        lowered, floating = (call() for call in timed.calls())
        counts = timed.counts()
    assert isinstance(lowered, torch.Tensor)
    assert isinstance(floating, torch.Tensor)
    assert lowered.shape == floating.shape
    assert not torch.equal(lowered, floating)
    assert counts.kernels == ("quantized.linear_relu",)
    assert (counts.quantize, counts.dequantize) == (1, 1)
    weights = 768 * 768
    assert weights < counts.weight_bytes < 2 * weights, "one byte a weight, and its bias, scales and zero points"


def test_the_float_model_of_qat_does_not_round() -> None:
    run = run_of("nnqat.EmbeddingBag")
    with engine("x86").scope(), fx.quiet(), torch.no_grad():
        timed = Timed.of(run)  # type: ignore[arg-type]
    rounding = [name for name, _ in timed.floating.named_modules() if "fake_quant" in name]
    assert all(isinstance(timed.floating.get_submodule(name), torch.nn.Identity) for name in rounding)
    assert rounding


def test_instructions_are_the_least_of_three_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counts = iter([700, 500, 600])

    def opened() -> int:
        path = tmp_path / "counter"
        path.write_bytes(struct.pack("=Q", next(counts)))
        return os.open(path, os.O_RDONLY)

    monkeypatch.setattr(counters, "_open", opened)
    calls: list[int] = []
    assert counters.of(lambda: calls.append(1)) == 500
    assert len(calls) == 3


def test_without_a_counter_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "vax")
    calls: list[int] = []
    assert counters.of(lambda: calls.append(1)) is None
    assert not calls


def test_the_machine_counts_more_for_more_where_it_counts() -> None:
    few, many = (counters.of(lambda n=n: sum(range(n))) for n in (1_000, 100_000))  # type: ignore[misc]
    assert (few is None) == (many is None)
    if few is not None and many is not None:
        assert many > 10 * few
