"""What a quantized network costs beside its float model, with a clock that the passes set."""

import pytest
import torch
from torch import Tensor, nn

from conformance.audit import costs


class Clock:
    """A clock that a pass moves on."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def perf_counter(self) -> float:
        return self.seconds


class Taking(nn.Module):
    """Takes so many seconds on a clock for each of its first passes, the last number for all others."""

    def __init__(self, clock: Clock, *seconds: float) -> None:
        super().__init__()
        self.clock, self.seconds, self.passes = clock, [*seconds], 0

    def forward(self, x: Tensor) -> Tensor:
        self.clock.seconds += self.seconds[min(self.passes, len(self.seconds) - 1)]
        self.passes += 1
        return x.add_(1)


def test_the_fastest_passes_are_compared_and_the_first_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(costs, "time", clock)
    quantized, floating = Taking(clock, 0.001, 0.03, 0.02, 0.04), Taking(clock, 0.001, 0.09, 0.04)
    x = torch.zeros(2)
    assert costs.time_ratio(lambda batch: quantized(*batch), floating, (x,)) == pytest.approx(0.5)
    assert quantized.passes == floating.passes == 1 + costs.PASSES
    assert not x.any(), "every pass gets a copy of the batch"


def test_a_slow_network_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(costs, "time", clock)
    quantized, floating = Taking(clock, 30.0), Taking(clock, 10.0)
    assert costs.time_ratio(lambda batch: quantized(*batch), floating, (torch.zeros(2),)) == pytest.approx(3.0)
    assert quantized.passes == 2


def test_the_size_is_that_of_parameters_and_buffers() -> None:
    assert costs.size_ratio(60, nn.Linear(4, 5, bias=True)) == pytest.approx(60 / 100)
    assert costs.size_ratio(60, nn.ReLU()) is None
