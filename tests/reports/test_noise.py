"""The noise of a machine, split into what varies in a process, with the layout of memory, and between processes."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from timed import passes, timing, write

from conformance.bench.results import read
from conformance.bench.timings import Repeat
from conformance.reports.noise import PARTS, Spread, noise

STEADY = [0.5, 0.505, 0.495]


def repeats(deviations: dict[str, float], number_of_passes: int = 60) -> Iterator[Repeat]:
    """Repeated timings in which each part of the noise has this standard deviation."""
    chance = random.Random(1)
    for number in range(number_of_passes):
        process = chance.gauss(0, deviations["process"])
        for opened in range(2):
            layout = chance.gauss(0, deviations["layout"])
            for repetition in range(2):
                ratio = process + layout + chance.gauss(0, deviations["neighbours"])
                yield Repeat(timing().id, "1", number, opened, repetition, ratio, 1e-6)


@pytest.mark.parametrize("greatest", PARTS)
def test_each_part_of_the_noise_is_told_from_the_others(greatest: str, tmp_path: Path) -> None:
    deviations = {**dict.fromkeys(PARTS, 0.002), greatest: 0.03}
    measured = noise(read(write(tmp_path / "one.jsonl", passes("nn.Linear", STEADY), repeats(deviations))))
    assert measured is not None
    assert measured.parts[greatest].median == pytest.approx(0.03, rel=0.25)
    assert all(measured.parts[name].median < 0.015 for name in PARTS if name != greatest)


def test_the_spread_of_passes_is_over_all_cases(tmp_path: Path) -> None:
    timings = [*passes("nn.Linear", STEADY), *passes("nn.ReLU", [0.5, 0.5, 0.5])]
    measured = noise(read(write(tmp_path / "one.jsonl", timings)))
    assert measured is not None
    assert measured.passes.median == pytest.approx(0.005, rel=0.01)
    assert (measured.parts, measured.frequency, measured.disturbed) == ({}, None, 0.0)


def test_what_follows_the_pace_of_the_processor_is_told(tmp_path: Path) -> None:
    chance = random.Random(2)
    follows = [
        Repeat(timing().id, "1", number, opened, repetition, 0.1 * pace, 1e-6 * 2.718**pace)
        for number in range(5)
        for opened in range(2)
        for repetition in range(2)
        for pace in [chance.gauss(0, 0.01)]
    ]
    measured = noise(read(write(tmp_path / "one.jsonl", passes("nn.Linear", STEADY), follows)))
    assert measured is not None
    assert measured.frequency == pytest.approx(1.0, abs=0.01)


def test_a_file_of_single_passes_has_no_noise(tmp_path: Path) -> None:
    assert noise(read(write(tmp_path / "one.jsonl", [timing()]))) is None


def test_a_spread_is_written_as_percentages() -> None:
    assert str(Spread(0.0152, 0.04)) == "1.5% (4.0%)"
