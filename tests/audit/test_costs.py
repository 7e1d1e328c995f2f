"""What a quantized network costs beside its float model, with a clock that the passes set."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.audit import audit, costs


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
    engine: Any = SimpleNamespace(weight_bytes=lambda program: 60)
    size, remarks = costs.size_ratio(engine, list, nn.Linear(4, 5))
    assert size == pytest.approx(60 / 100)
    assert not remarks
    assert costs.size_ratio(engine, list, nn.ReLU()) == (None, ())


@pytest.mark.skipif("qnnpack" not in torch.backends.quantized.supported_engines, reason="torch was built without it")
def test_a_network_that_cannot_be_saved_says_so() -> None:
    """QNNPACK does not give the weight of a convolution of volumes back."""
    found = audit(nn.Sequential(nn.Conv3d(2, 2, 1)).eval(), [torch.rand(2, 2, 3, 3, 3)] * 2, "qnnpack", reduce=False)
    assert found.size_ratio is None
    assert any(one.startswith("the quantized network cannot be saved: RuntimeError: QNNPACK") for one in found.remarks)
    assert found.layers
