"""Quantization to a grid: nearest codes, ties, saturation, and weights."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from conformance.oracle import Qparams
from conformance.oracle.arithmetic import (
    EXACT_BAND,
    FLOAT_BAND,
    ROUNDINGS,
    quantize,
    quantized_by_row,
    quantized_weight,
)
from conformance.oracle.scheme import Grid
from tests.oracle.oracle_models import (
    NARROW,
    QINT8,
    QUINT8,
    REDUCED,
    ROWS4,
    ROWS8,
    WEIGHT,
    codes_of,
    qparams,
)

TIES = [(-1.5, -2, -1), (-0.5, -1, 0), (0.5, 0, 1), (1.5, 1, 2), (2.5, 2, 3)]


@pytest.mark.parametrize(("steps", "below", "above"), TIES)
@pytest.mark.parametrize(
    ("grid", "zero_point"), [(QINT8, 0), (QINT8, -3), (QUINT8, 100), (QUINT8, 101), (Grid("quint4x2", 0, 15), 7)]
)
def test_a_tie_gets_both_neighbours(steps: float, below: int, above: int, grid: Grid, zero_point: int) -> None:
    result = quantize(torch.tensor([steps / 4]).double(), qparams(grid, 0.25, zero_point))
    assert result.position.tolist() == [steps + zero_point]
    assert (result.low.tolist(), result.high.tolist()) == ([below + zero_point], [above + zero_point])
    assert result.tied.tolist() == [True]


@pytest.mark.parametrize(("grid", "zero_point"), [(QINT8, 0), (QINT8, -3), (QUINT8, 100), (QUINT8, 101)])
def test_a_value_between_ties_gets_the_nearest_code(grid: Grid, zero_point: int) -> None:
    steps = torch.tensor([-2.0, -1.75, -1.25, -0.75, -0.25, 0.0, 0.25, 0.75, 1.25, 1.75, 3.0]).double()
    nearest = [code + zero_point for code in (-2, -2, -1, -1, 0, 0, 0, 1, 1, 2, 3)]
    result = quantize(steps / 4, qparams(grid, 0.25, zero_point))
    assert result.low.tolist() == result.high.tolist() == nearest
    assert not bool(result.tied.any())


@pytest.mark.parametrize("band", [EXACT_BAND, FLOAT_BAND])
@pytest.mark.parametrize("centre", [-1.5, -0.5, 0.5, 1.5])
def test_a_tie_is_as_wide_as_the_band(band: float, centre: float) -> None:
    below, inside, outside = int(centre - 0.5), band, band + 2.0**-40
    near = [centre - inside, centre + inside, centre - outside, centre + outside]
    low, high = codes_of(near, qparams(QINT8, 1.0, 0), band)
    assert low == [below, below, below, below + 1]
    assert high == [below + 1, below + 1, below, below + 1]


def test_the_bands_are_the_errors_of_float64_and_float32() -> None:
    assert (EXACT_BAND, FLOAT_BAND) == (2.0**-20, 2.0**-10)
    beside = [0.5 + 2.0**-15]
    assert codes_of(beside, qparams(QINT8, 1.0, 0)) == ([1], [1])
    assert codes_of(beside, qparams(QINT8, 1.0, 0), FLOAT_BAND) == ([0], [1])


@pytest.mark.parametrize(
    ("name", "rounded"),
    [("even", [-2, 0, 0, 2]), ("up", [-1, 0, 1, 2]), ("down", [-2, -1, 0, 1]), ("away from zero", [-2, -1, 1, 2])],
)
@pytest.mark.parametrize("beside", [-(2.0**-30), 0.0, 2.0**-30])
def test_dequantization_rounds_ties(name: str, rounded: list[int], beside: float) -> None:
    positions = torch.tensor([-1.5, -0.5, 0.5, 1.5]).double() + beside
    result = quantize(positions, qparams(QINT8, 1.0, 0))
    assert result.dequantized(ROUNDINGS[name]).tolist() == rounded


@pytest.mark.parametrize(
    ("name", "rounded"),
    [
        ("even", [2, 4, 4]),
        ("even, then the zero point", [3, 3, 5]),
        ("away from zero", [3, 4, 5]),
        ("away from zero, then the zero point", [2, 4, 5]),
    ],
)
def test_a_zero_point_may_be_added_after_rounding(name: str, rounded: list[int]) -> None:
    result = quantize(torch.tensor([-0.5, 0.5, 1.5]).double(), qparams(QUINT8, 1.0, 3))
    assert [code + 3 for code in result.dequantized(ROUNDINGS[name]).tolist()] == rounded


def test_values_are_dequantized_with_scale_and_zero_point() -> None:
    # round([-1.1, 0, 0.3, 2.8] / 0.5) = [-2, 0, 1, 6]
    result = quantize(torch.tensor([-1.1, 0.0, 0.3, 2.8]).double(), qparams(QUINT8, 0.5, 3))
    assert result.low.tolist() == [1, 3, 4, 9]
    assert result.dequantized().tolist() == [-1.0, 0.0, 0.5, 3.0]


@pytest.mark.parametrize(
    ("grid", "positions", "ends"),
    [
        (QUINT8, [-300.0, -1.0, -0.75, 255.25, 256.0, 1e9], [0, 0, 0, 255, 255, 255]),
        (QINT8, [-300.0, -129.0, -128.25, 127.25, 128.0, 1e9], [-128, -128, -128, 127, 127, 127]),
        (ROWS4, [-1.0, 15.25, 16.0], [0, 15, 15]),
        (Grid("qint32", -(2**31), 2**31 - 1), [-1e12, 1e12], [-(2**31), 2**31 - 1]),
    ],
)
def test_codes_saturate_at_both_ends(grid: Grid, positions: list[float], ends: list[int]) -> None:
    assert codes_of(positions, qparams(replace(grid, axis=None), 1.0, 0)) == (ends, ends)


@pytest.mark.parametrize(
    ("grid", "zero_point", "positions"), [(QUINT8, 20, [-0.5, -3.5, 255.5, 300.5]), (QINT8, 0, [-128.5, -130.5, 127.5])]
)
def test_a_saturated_tie_gets_one_code(grid: Grid, zero_point: int, positions: list[float]) -> None:
    result = quantize(torch.tensor(positions).double() - zero_point, qparams(grid, 1.0, zero_point))
    ends = [grid.low if position < 0 else grid.high for position in positions]
    assert result.low.tolist() == result.high.tolist() == ends
    assert not bool(result.tied.any())
    for rounding in ROUNDINGS.values():
        assert result.dequantized(rounding).tolist() == [end - zero_point for end in ends]


@pytest.mark.parametrize(("grid", "last"), [(QUINT8, 254.5), (QINT8, 126.5)])
def test_a_tie_next_to_the_last_code_gets_both_neighbours(grid: Grid, last: float) -> None:
    assert codes_of([last], qparams(grid, 1.0, 0)) == ([grid.high - 1], [grid.high])


@pytest.mark.parametrize(
    ("grid", "positions", "real", "simulated"),
    [
        (REDUCED, [-4.0, 127.0, 128.0, 200.0, 300.0], [0, 127, 128, 200, 255], [0, 127, 127, 127, 127]),
        (NARROW, [-200.0, -128.0, -127.0, 127.0], [-128, -128, -127, 127], [-127, -127, -127, 127]),
    ],
)
def test_a_real_quantization_saturates_at_the_dtypes_ends_and_a_simulated_one_at_the_grids(
    grid: Grid, positions: list[float], real: list[int], simulated: list[int]
) -> None:
    grid_qparams = qparams(grid, 1.0, 0)
    assert codes_of(positions, grid_qparams) == (real, real)
    assert codes_of(positions, grid_qparams, simulated=True) == (simulated, simulated)


def test_a_tie_at_the_end_of_the_grid_matters_only_for_a_real_quantization() -> None:
    assert codes_of([127.5], qparams(REDUCED, 1.0, 0)) == ([127], [128])
    assert codes_of([127.5], qparams(REDUCED, 1.0, 0), simulated=True) == ([127], [127])


def test_each_row_is_quantized_with_its_float_zero_point() -> None:
    # row 0: 1 / 0.5 + 4.5 = 6.5, a tie; row 1: 10.25 - 1 = 9.25
    low, high = codes_of([[-2.25, 1.0], [1.0, 10.25]], qparams(ROWS4, [0.5, 1.0], [4.5, -1.0]))
    assert (low, high) == ([[0, 6], [0, 9]], [[0, 7], [0, 9]])


@pytest.mark.parametrize(
    ("weight_qparams", "weight", "expected"),
    [
        (qparams(WEIGHT, 0.25, 0), [-0.375, -0.125, 0.125, 0.375, 0.3], [-0.5, 0.0, 0.0, 0.5, 0.25]),
        (qparams(WEIGHT, 1.0, 0), [127.5, -127.5, -200.0, 200.0], [127.0, -128.0, -128.0, 127.0]),
        # in float32 1 / 0.1 is 10 and 0.35 * 10 is 3.5, a little less in exact arithmetic
        (qparams(WEIGHT, 0.1, 0), [0.35], [4 * 0.10000000149011612]),
        (qparams(ROWS8, [1.0], [2049.0]), [[-2049.0, -1794.0]], [[-2049.0, -1794.0]]),
        # float16 has 11 bits: the offset of a row of 4-bit codes, -2049, becomes -2048, and 0.1 this
        (qparams(ROWS4, [1.0], [2049.0]), [[-2049.0, -2034.0]], [[-2048.0, -2033.0]]),
        (qparams(ROWS4, [0.1], [0.0]), [[0.0, 1.5, 9.0]], [[0.0, 1.4996337890625, 1.4996337890625]]),
    ],
)
def test_a_weight_is_quantized_in_float32_with_ties_to_even(
    weight_qparams: Qparams, weight: Any, expected: Any
) -> None:
    result = quantized_weight(torch.tensor(weight), weight_qparams)
    assert result.dtype == torch.float64
    assert result.tolist() == expected


def test_a_row_is_quantized_with_the_inverse_of_its_rounded_scale() -> None:
    # 255 / 14.875 is 17.14285850 in float32, and the inverse of 14.875 / 255 is 17.14285660: with it 22.5 steps become 22
    rows, certain = quantized_by_row(torch.tensor([[0.0, 1.3125, 14.875]], dtype=torch.float64), QINT8)
    assert certain
    assert rows.tolist() == (torch.tensor([[0.0, 22.0, 255.0]]) * (torch.tensor(14.875) / 255)).tolist()
