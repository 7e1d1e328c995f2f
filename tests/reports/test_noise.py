"""The noise of a machine: how much passes over a case differ."""

from pathlib import Path

import pytest
from timed import passes, timing, write

from conformance.bench.results import read
from conformance.reports.noise import noise


def test_the_spread_of_passes_is_over_all_cases(tmp_path: Path) -> None:
    timings = [*passes("nn.Linear", [0.5, 0.505, 0.495]), *passes("nn.ReLU", [0.5, 0.5, 0.5])]
    measured = noise(read(write(tmp_path / "one.jsonl", timings)))
    assert measured is not None
    assert (measured.median, measured.most) == pytest.approx((0.005, 0.009), rel=0.01)
    assert measured.disturbed == 0.0


def test_a_file_of_single_passes_has_no_noise(tmp_path: Path) -> None:
    assert noise(read(write(tmp_path / "one.jsonl", [timing()]))) is None
