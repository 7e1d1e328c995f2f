"""Timing of models: rounds in turn, disturbed rounds, and counts of kernels and instructions."""

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
    ELSEWHERE,
    FEWEST_ROUNDS,
    LEAST_TRIES,
    MOST_SECONDS,
    PATIENCE_SECONDS,
    PROBE_VARIES,
    REFILLS,
    ROUND_SECONDS,
    WARM_UP_SECONDS,
    Pace,
    Timed,
    calls_a_round,
    interleaved,
)
from conformance.cases.claims import backend
from conformance.cases.runs import Run, benchmarks
from conformance.engines.registry import engine
from conformance.models import fx


class Clock:
    """A clock that only the calls of a test advance."""

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
    """A pace whose reference takes these seconds in turn, and then always the last."""
    seconds = [*references] or [1e-6]

    def reference() -> None:
        clock.now += seconds.pop(0) if len(seconds) > 1 else seconds[0]

    measured = Pace(reference, clock)
    measured.now()
    return measured


def test_a_slow_probe_is_a_disturbance_that_the_reference_does_not_show() -> None:
    clock = Clock()
    times = [*[1e-6] * (REFILLS + 1), *[1.05e-6] * (REFILLS + 1)]

    def probe() -> None:
        clock.now += times.pop(0) if times else 1.5e-6

    disturbed = Pace(clock.taking("reference", 1e-6), clock, probe)
    assert [disturbed.now() for _ in range(3)] == pytest.approx([1.0, 1.0, 1.5 / PROBE_VARIES])
    interleaved([clock.taking("call", 1e-3)], [1], disturbed, 3)
    assert not disturbed.quiet


@pytest.mark.parametrize(("slower", "factor"), [(1.0, 1.0), (1.03, 1.03), (1.5, ELSEWHERE), (0.9, 0.9)])
def test_a_pace_is_settled_in_a_new_process_unless_that_is_disturbed(slower: float, factor: float) -> None:
    clock = Clock()
    settled = pace(clock, *[1e-6] * (REFILLS + 2), slower * 1e-6)
    settled.moved()
    assert settled.fastest == pytest.approx(factor * 1e-6)


def test_each_round_has_both_calls_and_each_is_first_equally_often() -> None:
    clock = Clock()
    calls = clock.taking("quick", 1e-4), clock.taking("slow", 2e-4)
    (quick, slow), disturbed = interleaved(calls, [1, 1], pace(clock), 10)
    assert quick == pytest.approx([1e-4] * 10)
    assert slow == pytest.approx([2e-4] * 10)
    assert disturbed == 0
    timed = clock.order[-20:]
    assert timed == ["quick", "slow", "slow", "quick"] * 5


def test_a_round_of_a_short_call_has_many_calls() -> None:
    clock = Clock()
    call = clock.taking("short", ROUND_SECONDS / 50)
    assert calls_a_round(call, clock) == 50
    assert clock.now >= WARM_UP_SECONDS
    clock.order.clear()
    ((first, *_),), _ = interleaved([call], [50], pace(clock), 3)
    assert len(clock.order) == 151
    assert first == pytest.approx(ROUND_SECONDS / 50), "the mean of its calls"


def test_a_long_call_has_fewer_rounds() -> None:
    clock = Clock()
    (rounds,), _ = interleaved([clock.taking("long", 0.75 * MOST_SECONDS)], [1], pace(clock), 40)
    assert len(rounds) == FEWEST_ROUNDS


def test_a_long_call_has_spare_rounds_for_disturbed_ones() -> None:
    clock = Clock()
    slow = [False, True, True, False, False, False]

    def reference() -> None:
        clock.now += 1.5e-6 if slow[min(len(measured), len(slow) - 1)] else 1e-6

    measured: list[float] = []

    def call() -> None:
        clock.now += 2 * PATIENCE_SECONDS
        measured.append(clock.now)

    one = Pace(reference, clock)
    one.now()
    ((*rounds,),), disturbed = interleaved([call], [1], one)
    assert (len(rounds), disturbed, one.quiet) == (FEWEST_ROUNDS, 2, True)
    assert LEAST_TRIES > FEWEST_ROUNDS


class Neighbour(Clock):
    """A clock of a machine on which everything takes 1.5 times as long from `start` to `end`."""

    def __init__(self, start: float, end: float) -> None:
        super().__init__()
        self.start, self.end = start, end

    def taking(self, name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            self.now += seconds * (1.5 if self.start <= self.now < self.end else 1)
            self.order.append(name)

        return call


def test_disturbed_rounds_are_left_out_and_replaced() -> None:
    clock = Neighbour(0.001, 0.005)
    call = clock.taking("call", ROUND_SECONDS)
    reference_pace = Pace(clock.taking("reference", 1e-6), clock)
    reference_pace.now()
    (rounds,), disturbed = interleaved([call], [1], reference_pace, 20)
    assert rounds == pytest.approx([ROUND_SECONDS] * 20)
    assert disturbed == pytest.approx(0.004 / (1.5 * ROUND_SECONDS), abs=2)


def test_disturbed_rounds_are_used_on_a_machine_that_is_always_disturbed() -> None:
    clock = Neighbour(0.0, math.inf)
    reference_pace = Pace(clock.taking("reference", 1e-6), clock)
    reference_pace.fastest = 1.5e-6 / 1.2
    (rounds,), disturbed = interleaved([clock.taking("call", 1e-3)], [1], reference_pace, 100)
    assert len(rounds) >= FEWEST_ROUNDS
    assert rounds == pytest.approx([1.5e-3] * len(rounds))
    assert clock.now == pytest.approx(PATIENCE_SECONDS, rel=0.02)
    for _ in range(250):
        reference_pace.forget()
    (rounds,), disturbed = interleaved([clock.taking("call", 1e-4)], [1], reference_pace, 20)
    assert (len(rounds), disturbed) == (20, 0), "a machine that stays slower counts as undisturbed"


def test_the_latest_pace_is_the_fastest_since_it_was_forgotten() -> None:
    clock = Clock()
    measured = pace(clock, *[4e-6] * 6, 2e-6)
    assert measured.latest == pytest.approx(4e-6)
    measured.forget()
    assert measured.latest == math.inf
    measured.now()
    measured.now()
    assert measured.latest == pytest.approx(2e-6)


def test_garbage_collection_is_disabled_while_timing() -> None:
    seen = []
    interleaved([lambda: seen.append(gc.isenabled())], [1], Pace(lambda: None), 2)
    assert not any(seen)
    assert gc.isenabled()


def run_of(pattern: str) -> Run:
    return next(run for run in benchmarks(backend("fbgemm"), ["x86"], ["small"]) if run.claim.pattern == pattern)


def test_the_lowered_and_the_float_model_are_timed() -> None:
    run = run_of("nn.Linear+nn.ReLU")
    with engine("x86").scope(), fx.quiet(), torch.no_grad():
        timed = Timed.of(run)
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


def test_inputs_lie_elsewhere_in_each_series_of_rounds() -> None:
    reference = Pace(lambda: None)
    with engine("x86").scope(), fx.quiet(), torch.no_grad():
        timed = Timed.of(run_of("nn.Linear"))
        places = []
        for _ in range(4):
            (quantized, floating), _ = timed.rounds(reference, 2)
            assert len(quantized) == len(floating) >= 2
            places.append(timed.inputs[0].data_ptr())
        (alone,), _ = timed.rounds(reference, 2, floating=False)
    assert len(alone) >= 2
    assert len(set(places)) > 1


def test_a_model_that_reshapes_its_input_gets_the_same_shape_in_each_call() -> None:
    with engine("x86").scope(), fx.quiet(), torch.no_grad():
        timed = Timed.of(run_of("Tensor.unsqueeze_"))
        shapes = [call().shape for call in timed.calls() for _ in range(3)]  # type: ignore[attr-defined]
    assert timed.reshapes
    assert len(set(shapes)) == 1


def test_the_float_model_of_a_qat_run_has_no_fake_quantize() -> None:
    run = run_of("nnqat.EmbeddingBag")
    with engine("x86").scope(), fx.quiet(), torch.no_grad():
        timed = Timed.of(run)
    assert isinstance(timed.floating, torch.nn.Module)
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


def test_without_a_counter_there_is_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "vax")
    calls: list[int] = []
    assert counters.of(lambda: calls.append(1)) is None
    assert not calls


def test_more_work_has_more_instructions_where_they_are_counted() -> None:
    few, many = (counters.of(lambda n=n: sum(range(n))) for n in (1_000, 100_000))  # type: ignore[misc]
    assert (few is None) == (many is None)
    if few is not None and many is not None:
        assert many > 10 * few
