"""Scales and zero points that observers and dynamic layers compute."""

from dataclasses import replace

import pytest
import torch

from conformance.oracle.arithmetic import (
    DYNAMIC_FLOOR,
    OBSERVER_FLOOR,
    dynamic_qparams,
    extremes,
    power_of_two_qparams,
    quantize,
)
from conformance.oracle.scheme import Grid
from tests.oracle.oracle_models import (
    NARROW,
    QINT8,
    QUINT8,
    REDUCED,
    ROWS4,
    WEIGHT,
    codes_of,
)


def observer_qparams(grid: Grid, *values: float) -> tuple[float, float]:
    """Scale and zero point that a per-tensor observer computes for some values."""
    chosen = power_of_two_qparams(*extremes(torch.tensor(values), grid), grid)
    return chosen.scale.item(), chosen.zero_point.item()


@pytest.mark.parametrize(
    ("grid", "data", "expected"),
    [
        (QUINT8, (1.0, 255.0), (1.0, 0)),
        (QUINT8, (-255.0, -1.0), (1.0, 255)),
        (QUINT8, (250.0, 255.0), (1.0, 0)),
        (QUINT8, (-255.0, -250.0), (1.0, 255)),
        (QINT8, (1.0, 255.0), (1.0, -128)),
        (QINT8, (-255.0, -1.0), (1.0, 127)),
        (REDUCED, (1.0, 127.0), (1.0, 0)),
        (REDUCED, (-127.0, -1.0), (1.0, 127)),
        (QUINT8, (-2.0, 1.984375), (2.0**-6, 128)),  # 255 steps of 2**-6, 128 of them below zero
        (QINT8, (-2.0, 1.984375), (2.0**-6, 0)),
    ],
)
def test_a_range_without_zero_is_extended_to_it(
    grid: Grid, data: tuple[float, ...], expected: tuple[float, int]
) -> None:
    assert observer_qparams(grid, *data) == expected


@pytest.mark.parametrize(
    ("low", "high", "zero_point"),
    [(-0.25, 254.0, 0), (-0.75, 254.0, 1), (-0.5, 254.5, 0), (-1.5, 253.5, 2), (-2.5, 252.5, 2)],
)
def test_a_zero_point_is_rounded_to_even(low: float, high: float, zero_point: int) -> None:
    assert observer_qparams(QUINT8, low, high) == (1.0, zero_point)


@pytest.mark.parametrize(
    ("grid", "high", "scale"),
    [
        (QUINT8, 255 * 2.0**-4, 2.0**-4),
        (QUINT8, 255 * 2.0**-4 + 2.0**-12, 2.0**-3),
        (QUINT8, 255 * 2.0**-4 - 2.0**-12, 2.0**-4),
        (QUINT8, 256 * 2.0**-4, 2.0**-3),
        (REDUCED, 127 * 2.0**-4, 2.0**-4),
        (REDUCED, 128 * 2.0**-4, 2.0**-3),
        (QUINT8, 200 * 2.0**10, 2.0**10),
    ],
)
def test_scales_are_rounded_up_to_powers_of_two(grid: Grid, high: float, scale: float) -> None:
    assert observer_qparams(grid, 0.0, high) == (scale, grid.low)


@pytest.mark.parametrize("grid", [QUINT8, REDUCED, QINT8])
def test_scales_below_the_floor_become_the_floor(grid: Grid) -> None:
    floored = replace(grid, floor=2.0**-12)
    steps = grid.high - grid.low
    assert OBSERVER_FLOOR == 2.0**-23
    assert observer_qparams(grid, 0.0, 0.0) == (2.0**-23, grid.low)
    assert observer_qparams(grid, 0.0, 2.0**-20) == (2.0**-23, grid.low)
    assert observer_qparams(grid, 0.0, steps * 2.0**-22) == (2.0**-22, grid.low)
    assert observer_qparams(floored, 0.0, 0.0) == (2.0**-12, grid.low)
    assert observer_qparams(floored, 0.0, steps * 2.0**-14) == (2.0**-12, grid.low)
    assert observer_qparams(floored, 0.0, steps * 2.0**-11) == (2.0**-11, grid.low)


@pytest.mark.parametrize(
    ("grid", "data", "expected"),
    [
        (WEIGHT, (-127 * 2.0**-7, 0.25), (2.0**-7, 0)),
        (WEIGHT, (-0.25, 127 * 2.0**-7), (2.0**-7, 0)),
        (WEIGHT, (0.5, 1.0), (2.0**-6, 0)),  # 1/127 is above 2**-7
        (replace(WEIGHT, low=-128), (-127.5 * 2.0**-7, 0.25), (2.0**-7, 0)),  # half of 255 steps
        (WEIGHT, (0.0, 0.0), (2.0**-23, 0)),
        (replace(WEIGHT, floor=2.0**-12), (0.0, 0.0), (2.0**-12, 0)),
        (replace(REDUCED, zero_point="symmetric"), (0.0, 63.5), (1.0, 63)),
        (replace(QUINT8, zero_point="symmetric"), (-127.5, 0.0), (1.0, 127)),
    ],
)
def test_a_symmetric_grid_has_zero_in_the_middle(
    grid: Grid, data: tuple[float, ...], expected: tuple[float, int]
) -> None:
    assert observer_qparams(grid, *data) == expected


@pytest.mark.parametrize(
    ("data", "scale", "zero_point"),
    [
        ((1.0, 16.0), 1.0, -1.0),  # the range need not hold zero
        ((-16.0, -1.0), 1.0, 16.0),
        ((-2.25, 5.25), 0.5, 4.5),
        ((-2.25, 5.5), 1.0, 2.25),  # 7.75/15 is above a half
        ((0.75, 0.75), 1.0, -0.75),  # no range at all
        ((0.0, 15 * 2.0**-12), 1.0, 0.0),  # a scale at the floor is too small
        ((0.0, 15 * 2.0**-11), 2.0**-11, 0.0),
    ],
)
def test_a_float_zero_point_gives_the_least_value_code_0(
    data: tuple[float, ...], scale: float, zero_point: float
) -> None:
    grid = replace(ROWS4, floor=2.0**-12)
    rows = torch.tensor([data, data])
    result = power_of_two_qparams(*extremes(rows, grid), grid)
    assert result.scale.tolist() == [scale, scale]
    assert result.zero_point.tolist() == [zero_point, zero_point]
    assert result.zero_point.dtype == torch.float32


TABLE = [[1.0, -2.0, 4.0], [-127.0, 16.0, 64.0]]


@pytest.mark.parametrize(
    ("axis", "least", "greatest"),
    [
        (None, [-127.0], [64.0]),
        (0, [-2.0, -127.0], [4.0, 64.0]),
        (1, [-127.0, -2.0, 4.0], [1.0, 16.0, 64.0]),
    ],
)
def test_extremes_are_those_of_each_index_of_the_axis(
    axis: int | None, least: list[float], greatest: list[float]
) -> None:
    grid = replace(WEIGHT, axis=axis)
    low, high = extremes(torch.tensor(TABLE).double(), grid)
    assert (low.tolist(), high.tolist()) == (least, greatest)
    assert low.dtype == torch.float32
    image = torch.tensor(TABLE).reshape(2, 3, 1, 1).expand(2, 3, 4, 5)
    assert [part.tolist() for part in extremes(image, grid)] == [least, greatest]


@pytest.mark.parametrize(
    ("axis", "scales", "expected"),
    [
        (None, [1.0], [[1, -2, 4], [-127, 16, 64]]),
        (0, [0.0625, 1.0], [[16, -32, 64], [-127, 16, 64]]),  # 4/127 is above 2**-5
        (1, [1.0, 0.25, 1.0], [[1, -8, 4], [-127, 64, 64]]),  # 16/127 is above 2**-3, 64/127 above 2**-1
    ],
)
def test_each_index_of_the_axis_has_a_scale(axis: int | None, scales: list[float], expected: list[list[int]]) -> None:
    grid = replace(WEIGHT, axis=axis)
    weight = torch.tensor(TABLE)
    result = power_of_two_qparams(*extremes(weight, grid), grid)
    assert result.scale.tolist() == scales
    assert result.zero_point.tolist() == [0] * len(scales)
    assert codes_of(TABLE, result) == (expected, expected)
    assert torch.equal(quantize(weight, result).dequantized(), weight.double())


def test_each_index_of_the_axis_has_a_zero_point() -> None:
    # row 0: 255 steps of 2**-6 from -1; row 1: 255 steps of 1 from 0
    rows = torch.tensor([[-1.0, 2.984375], [0.0, 255.0]])
    columns = rows.t().reshape(1, 2, 2).permute(0, 2, 1)
    for table, axis in ((rows, 0), (columns, 1)):
        grid = replace(QUINT8, axis=axis)
        result = power_of_two_qparams(*extremes(table, grid), grid)
        assert (result.scale.tolist(), result.zero_point.tolist()) == ([2.0**-6, 1.0], [64, 0])
        assert result.zero_point.dtype == torch.int32
        assert quantize(table, result).low.flatten().tolist() == [0, 255, 0, 255]


@pytest.mark.parametrize("data", [(0.0, 0.0), (-100.0, 100.0), (0.25, 0.5)])
def test_fixed_qparams_do_not_depend_on_the_data(data: tuple[float, float]) -> None:
    assert observer_qparams(replace(QUINT8, fixed=(2.0**-7, 128)), *data) == (2.0**-7, 128)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_an_empty_tensor_has_no_extremes(axis: int | None) -> None:
    with pytest.raises(ValueError, match="empty tensor"):
        extremes(torch.empty(0, 3), replace(QUINT8, axis=axis))


@pytest.mark.parametrize(
    ("grid", "data", "expected"),
    [
        (QUINT8, (-1.0, 2.984375), (2.0**-6, 64)),
        (QINT8, (-1.0, 2.984375), (2.0**-6, -64)),
        (REDUCED, (-1.0, 0.984375), (2.0**-6, 64)),
        (QUINT8, (-1.0, 3.0), (4 / 255, 64)),  # 255/4 = 63.75
        (QINT8, (-1.0, 3.0), (4 / 255, -64)),
        (QUINT8, (0.25, 5.1), (0.02, 0)),  # no power of two
        (QUINT8, (2.0, 255.0), (1.0, 0)),
        (QINT8, (2.0, 255.0), (1.0, -128)),
        (REDUCED, (2.0, 127.0), (1.0, 0)),
        (QUINT8, (-255.0, -3.0), (1.0, 255)),
        (QINT8, (-255.0, -3.0), (1.0, 127)),
        (REDUCED, (-127.0, -3.0), (1.0, 127)),
        (QUINT8, (-0.5, 254.5), (1.0, 0)),  # 0.5, rounded to even
        (QUINT8, (-1.5, 253.5), (1.0, 2)),
        (QINT8, (-0.5, 254.5), (1.0, -128)),  # -127.5, rounded to even
        (QINT8, (-1.5, 253.5), (1.0, -126)),
    ],
)
def test_a_dynamic_range_contains_zero(grid: Grid, data: tuple[float, ...], expected: tuple[float, int]) -> None:
    result = dynamic_qparams(torch.tensor(data).double(), grid)
    assert (result.scale.tolist(), result.zero_point.tolist()) == (torch.tensor([expected[0]]).tolist(), [expected[1]])
    assert (result.scale.dtype, result.zero_point.dtype) == (torch.float32, torch.int32)


@pytest.mark.parametrize(
    ("grid", "data", "zero_point"),
    [
        (QUINT8, (0.0, 1e-3), 0),
        (QUINT8, (-1e-3, 0.0), 255),
        (QUINT8, (-1e-3, 3e-3), 64),  # a quarter of 255 is 63.75
        (QINT8, (0.0, 1e-3), -128),
        (QINT8, (-1e-3, 0.0), 127),
        (QINT8, (-1e-3, 3e-3), -64),
        (QUINT8, (0.0, 6e-5 * 255), 0),
    ],
)
def test_a_dynamic_scale_below_the_floor_becomes_the_floor(
    grid: Grid, data: tuple[float, ...], zero_point: int
) -> None:
    result = dynamic_qparams(torch.tensor(data), grid)
    assert DYNAMIC_FLOOR == 6.1e-5
    assert result.scale.tolist() == torch.tensor([6.1e-5]).tolist()
    assert result.zero_point.tolist() == [zero_point]


def test_a_dynamic_scale_above_the_floor_is_kept() -> None:
    # 2**-14 is 6.1035e-5
    result = dynamic_qparams(torch.tensor([0.0, 255 * 2.0**-14]), QUINT8)
    assert result.scale.tolist() == [2.0**-14]


@pytest.mark.parametrize("tiny", [0.0, 1e-44, 1e-37])
@pytest.mark.parametrize(
    ("grid", "zero_point"),
    [
        (QUINT8, 0),
        (REDUCED, 0),
        (QINT8, 127),  # 128 steps off at the low end, 127 at the high one
        (Grid("qint8", -64, 127), -64),  # 64 steps off at the low end
        (NARROW, 127),  # 127 at both: the high one
    ],
)
def test_a_dynamic_scale_of_zero_becomes_a_tenth_and_the_zero_point_fits_the_end_with_less_error(
    tiny: float, grid: Grid, zero_point: int
) -> None:
    result = dynamic_qparams(torch.tensor([0.0, tiny]), grid)
    assert result.scale.tolist() == torch.tensor([0.1]).tolist()
    assert result.zero_point.tolist() == [zero_point]
