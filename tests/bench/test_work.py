"""Work of a call, limits of a machine, and the share of them that a call reaches."""

import pytest
import torch
from torch import nn

from conformance.bench import limits
from conformance.bench.timer import work
from conformance.bench.timings import Counts, Machine

MACHINE = Machine("1", 1e9, 4e9, {"1000": 1e9, "4000": 5e8})


def counts(operations: int | None, traffic: int | None) -> Counts:
    return Counts((), 0, 0, 0, None, operations, traffic)


def test_products_and_convolutions_are_counted() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Flatten(), nn.Linear(8 * 16, 10, bias=False))
    x = torch.ones(1, 3, 4, 4)
    operations, traffic = work(lambda: model(x), [x], weight_bytes=100)
    assert operations == 2 * (16 * 8 * 3 * 9 + 128 * 10)
    assert traffic == 100 + 4 * (48 + 10)


def test_a_recurrent_layer_is_counted_by_its_products() -> None:
    layer, x = nn.LSTM(8, 16), torch.ones(5, 1, 8)
    operations, _ = work(lambda: layer(x), [x], 0)
    assert operations == 5 * 2 * (8 * 64 + 16 * 64)


def test_the_least_seconds_are_those_of_products_or_of_traffic() -> None:
    assert MACHINE.least_seconds(counts(8000, 10)) == pytest.approx(8000 / 4e9)
    assert MACHINE.least_seconds(counts(8000, 10), floating=True) == pytest.approx(8000 / 1e9)
    assert MACHINE.least_seconds(counts(0, 2000)) == pytest.approx(2000 / 5e8)
    assert MACHINE.least_seconds(counts(None, None)) is None


def test_the_bandwidth_is_that_of_the_next_measured_size() -> None:
    assert [MACHINE.bytes_a_second(size) for size in (1, 1000, 1001, 9000)] == [1e9, 1e9, 5e8, 5e8]


def test_the_fastest_series_counts() -> None:
    times = iter([0.0, 4.0, 10.0, 12.0, *(10.0 * n for n in range(2, 20))])
    calls: list[int] = []
    assert limits.fastest(lambda: calls.append(1), 2, clock=lambda: next(times)) == 1.0
    assert len(calls) == 1 + 2 * limits.REPETITIONS


def test_limits_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SIDE", 64)
    monkeypatch.setattr(limits, "SIZES", (1 << 10, 1 << 12))
    measured = limits.measured("1")
    assert measured.threads == "1"
    assert min(measured.float_rate, measured.int8_rate, *measured.bandwidth.values()) > 0
    assert [*measured.bandwidth] == ["1024", "4096"]
