"""The oracle gives what was computed by hand, and knows nothing of what it judges."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.oracle import Answer, Codes, NotCovered, Qparams, evaluate
from conformance.oracle.arithmetic import (
    DYNAMIC_FLOOR,
    EXACT_BAND,
    FLOAT_BAND,
    OBSERVER_FLOOR,
    ROUNDINGS,
    dynamic_qparams,
    extremes,
    power_of_two_qparams,
    quantize,
    quantized_weight,
)
from conformance.oracle.layers import folded
from conformance.oracle.recurrent import Product, cell, layers
from conformance.oracle.scheme import ALWAYS, Grid, Scheme

ROOT = Path(__file__).parents[2]

QUINT8 = Grid("quint8", 0, 255)
REDUCED = Grid("quint8", 0, 127)
QINT8 = Grid("qint8", -128, 127)
NARROW = Grid("qint8", -127, 127)
WEIGHT = Grid("qint8", -127, 127, "symmetric")
ROWS8 = Grid("quint8", 0, 255, "float", axis=0)
ROWS4 = Grid("quint4x2", 0, 15, "float", axis=0)

STATIC = Scheme("static", QUINT8, WEIGHT)
DYNAMIC = Scheme("dynamic", QUINT8, WEIGHT)
BAGS = Scheme("weight", None, ROWS8)

M = TypeVar("M", bound=nn.Module)


def qparams(grid: Grid, scale: float | list[float], zero_point: float | list[float]) -> Qparams:
    zero_points = torch.tensor(zero_point).reshape(-1)
    return Qparams(
        grid, torch.tensor(scale).reshape(-1), zero_points if grid.zero_point == "float" else zero_points.int()
    )


def codes(values: Any, taken: Qparams, band: float = EXACT_BAND, *, simulated: bool = False) -> tuple[Any, Any]:
    made = quantize(torch.tensor(values, dtype=torch.float64), taken, band, simulated=simulated)
    return made.low.tolist(), made.high.tolist()


def observed(grid: Grid, *values: float) -> tuple[float, float]:
    """Scale and zero point that an observer of one scale chooses for some values."""
    chosen = power_of_two_qparams(*extremes(torch.tensor(values), grid), grid)
    return chosen.scale.item(), chosen.zero_point.item()


def filled(layer: M, **values: Any) -> M:
    """A layer with these parameters and statistics."""
    with torch.no_grad():
        for name, value in values.items():
            getattr(layer, name).copy_(torch.tensor(value))
    return layer.eval()


def linear(weight: list[list[float]], bias: list[float] | None = None) -> nn.Linear:
    values = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    return filled(nn.Linear(len(weight[0]), len(weight), bias is not None), **values)


class One(nn.Module):
    """A model of one operand."""

    def __init__(self, *steps: Callable[[Any], Any]) -> None:
        super().__init__()
        self.steps = steps
        self.layers = nn.ModuleList(step for step in steps if isinstance(step, nn.Module))

    def forward(self, x: Tensor) -> Any:
        for step in self.steps:
            x = step(x)
        return x


class Two(nn.Module):
    """A model of two operands."""

    def __init__(self, op: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.op(x, y)


class Three(nn.Module):
    """A model of three operands."""

    def __init__(self, op: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Any:
        return self.op(x, y, z)


def quantized(answer: Answer) -> Codes:
    (output,) = answer.outputs
    assert isinstance(output, Codes)
    return output


def exact(answer: Answer) -> Any:
    """The codes of the only output, which has no ties."""
    output = quantized(answer)
    assert not bool(output.tied.any())
    return output.low.tolist()


def values(answer: Answer) -> Any:
    """The values of the only output, which is float."""
    (output,) = answer.outputs
    assert isinstance(output, Tensor)
    assert output.dtype == torch.float64
    return output.tolist()


def chosen(answer: Answer) -> dict[str, tuple[float, float]]:
    return {name: (one.scale.item(), one.zero_point.item()) for name, one in answer.qparams.items()}


TIES = [(-1.5, -2, -1), (-0.5, -1, 0), (0.5, 0, 1), (1.5, 1, 2), (2.5, 2, 3)]


@pytest.mark.parametrize(("steps", "below", "above"), TIES)
@pytest.mark.parametrize(
    ("grid", "zero_point"), [(QINT8, 0), (QINT8, -3), (QUINT8, 100), (QUINT8, 101), (Grid("quint4x2", 0, 15), 7)]
)
def test_a_tie_is_either_neighbour(steps: float, below: int, above: int, grid: Grid, zero_point: int) -> None:
    made = quantize(torch.tensor([steps / 4]).double(), qparams(grid, 0.25, zero_point))
    assert made.position.tolist() == [steps + zero_point]
    assert (made.low.tolist(), made.high.tolist()) == ([below + zero_point], [above + zero_point])
    assert made.tied.tolist() == [True]


@pytest.mark.parametrize(("grid", "zero_point"), [(QINT8, 0), (QINT8, -3), (QUINT8, 100), (QUINT8, 101)])
def test_what_is_no_tie_is_the_nearest_code(grid: Grid, zero_point: int) -> None:
    steps = torch.tensor([-2.0, -1.75, -1.25, -0.75, -0.25, 0.0, 0.25, 0.75, 1.25, 1.75, 3.0]).double()
    nearest = [code + zero_point for code in (-2, -2, -1, -1, 0, 0, 0, 1, 1, 2, 3)]
    made = quantize(steps / 4, qparams(grid, 0.25, zero_point))
    assert made.low.tolist() == made.high.tolist() == nearest
    assert not bool(made.tied.any())


@pytest.mark.parametrize("band", [EXACT_BAND, FLOAT_BAND])
@pytest.mark.parametrize("centre", [-1.5, -0.5, 0.5, 1.5])
def test_a_tie_is_as_wide_as_the_band(band: float, centre: float) -> None:
    below, inside, outside = int(centre - 0.5), band, band + 2.0**-40
    near = [centre - inside, centre + inside, centre - outside, centre + outside]
    low, high = codes(near, qparams(QINT8, 1.0, 0), band)
    assert low == [below, below, below, below + 1]
    assert high == [below + 1, below + 1, below, below + 1]


def test_the_bands_are_what_float64_and_float32_err() -> None:
    assert (EXACT_BAND, FLOAT_BAND) == (2.0**-20, 2.0**-10)
    beside = [0.5 + 2.0**-15]
    assert codes(beside, qparams(QINT8, 1.0, 0)) == ([1], [1])
    assert codes(beside, qparams(QINT8, 1.0, 0), FLOAT_BAND) == ([0], [1])


@pytest.mark.parametrize(
    ("name", "rounded"),
    [("even", [-2, 0, 0, 2]), ("up", [-1, 0, 1, 2]), ("down", [-2, -1, 0, 1]), ("away from zero", [-2, -1, 1, 2])],
)
@pytest.mark.parametrize("beside", [-(2.0**-30), 0.0, 2.0**-30])
def test_ties_are_dequantized_as_they_are_rounded(name: str, rounded: list[int], beside: float) -> None:
    positions = torch.tensor([-1.5, -0.5, 0.5, 1.5]).double() + beside
    made = quantize(positions, qparams(QINT8, 1.0, 0))
    assert made.dequantized(ROUNDINGS[name]).tolist() == rounded


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
    made = quantize(torch.tensor([-0.5, 0.5, 1.5]).double(), qparams(QUINT8, 1.0, 3))
    assert [code + 3 for code in made.dequantized(ROUNDINGS[name]).tolist()] == rounded


def test_values_are_dequantized_with_scale_and_zero_point() -> None:
    # round([-1.1, 0, 0.3, 2.8] / 0.5) = [-2, 0, 1, 6]
    made = quantize(torch.tensor([-1.1, 0.0, 0.3, 2.8]).double(), qparams(QUINT8, 0.5, 3))
    assert made.low.tolist() == [1, 3, 4, 9]
    assert made.dequantized().tolist() == [-1.0, 0.0, 0.5, 3.0]


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
    assert codes(positions, qparams(replace(grid, axis=None), 1.0, 0)) == (ends, ends)


@pytest.mark.parametrize(
    ("grid", "zero_point", "positions"), [(QUINT8, 20, [-0.5, -3.5, 255.5, 300.5]), (QINT8, 0, [-128.5, -130.5, 127.5])]
)
def test_a_saturated_tie_is_no_tie(grid: Grid, zero_point: int, positions: list[float]) -> None:
    made = quantize(torch.tensor(positions).double() - zero_point, qparams(grid, 1.0, zero_point))
    ends = [grid.low if position < 0 else grid.high for position in positions]
    assert made.low.tolist() == made.high.tolist() == ends
    assert not bool(made.tied.any())
    for rounding in ROUNDINGS.values():
        assert made.dequantized(rounding).tolist() == [end - zero_point for end in ends]


@pytest.mark.parametrize(("grid", "last"), [(QUINT8, 254.5), (QINT8, 126.5)])
def test_a_tie_next_to_the_end_is_a_tie(grid: Grid, last: float) -> None:
    assert codes([last], qparams(grid, 1.0, 0)) == ([grid.high - 1], [grid.high])


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
    taken = qparams(grid, 1.0, 0)
    assert codes(positions, taken) == (real, real)
    assert codes(positions, taken, simulated=True) == (simulated, simulated)


def test_a_tie_at_the_grids_end_is_one_only_for_a_real_quantization() -> None:
    assert codes([127.5], qparams(REDUCED, 1.0, 0)) == ([127], [128])
    assert codes([127.5], qparams(REDUCED, 1.0, 0), simulated=True) == ([127], [127])


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
    assert observed(grid, *data) == expected


@pytest.mark.parametrize(
    ("low", "high", "zero_point"),
    [(-0.25, 254.0, 0), (-0.75, 254.0, 1), (-0.5, 254.5, 0), (-1.5, 253.5, 2), (-2.5, 252.5, 2)],
)
def test_a_zero_point_is_rounded_to_even(low: float, high: float, zero_point: int) -> None:
    assert observed(QUINT8, low, high) == (1.0, zero_point)


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
def test_a_power_of_two_is_kept_and_anything_above_rounded_up(grid: Grid, high: float, scale: float) -> None:
    assert observed(grid, 0.0, high) == (scale, grid.low)


@pytest.mark.parametrize("grid", [QUINT8, REDUCED, QINT8])
def test_a_scale_has_a_floor(grid: Grid) -> None:
    floored = replace(grid, floor=2.0**-12)
    steps = grid.high - grid.low
    assert OBSERVER_FLOOR == 2.0**-23
    assert observed(grid, 0.0, 0.0) == (2.0**-23, grid.low)
    assert observed(grid, 0.0, 2.0**-20) == (2.0**-23, grid.low)
    assert observed(grid, 0.0, steps * 2.0**-22) == (2.0**-22, grid.low)
    assert observed(floored, 0.0, 0.0) == (2.0**-12, grid.low)
    assert observed(floored, 0.0, steps * 2.0**-14) == (2.0**-12, grid.low)
    assert observed(floored, 0.0, steps * 2.0**-11) == (2.0**-11, grid.low)


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
    assert observed(grid, *data) == expected


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
def test_a_float_zero_point_is_where_the_least_value_has_code_0(
    data: tuple[float, ...], scale: float, zero_point: float
) -> None:
    grid = replace(ROWS4, floor=2.0**-12)
    rows = torch.tensor([data, data])
    made = power_of_two_qparams(*extremes(rows, grid), grid)
    assert made.scale.tolist() == [scale, scale]
    assert made.zero_point.tolist() == [zero_point, zero_point]
    assert made.zero_point.dtype == torch.float32


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
def test_each_index_of_the_axis_has_its_scale(axis: int | None, scales: list[float], expected: list[list[int]]) -> None:
    grid = replace(WEIGHT, axis=axis)
    weight = torch.tensor(TABLE)
    made = power_of_two_qparams(*extremes(weight, grid), grid)
    assert made.scale.tolist() == scales
    assert made.zero_point.tolist() == [0] * len(scales)
    assert codes(TABLE, made) == (expected, expected)
    assert torch.equal(quantize(weight, made).dequantized(), weight.double())


def test_each_index_of_the_axis_has_its_zero_point() -> None:
    # row 0: 255 steps of 2**-6 from -1; row 1: 255 steps of 1 from 0
    rows = torch.tensor([[-1.0, 2.984375], [0.0, 255.0]])
    columns = rows.t().reshape(1, 2, 2).permute(0, 2, 1)
    for table, axis in ((rows, 0), (columns, 1)):
        grid = replace(QUINT8, axis=axis)
        made = power_of_two_qparams(*extremes(table, grid), grid)
        assert (made.scale.tolist(), made.zero_point.tolist()) == ([2.0**-6, 1.0], [64, 0])
        assert made.zero_point.dtype == torch.int32
        assert quantize(table, made).low.flatten().tolist() == [0, 255, 0, 255]


def test_rows_with_float_zero_points_are_quantized_each_by_its_own() -> None:
    # row 0: 1 / 0.5 + 4.5 = 6.5, a tie; row 1: 10.25 - 1 = 9.25
    low, high = codes([[-2.25, 1.0], [1.0, 10.25]], qparams(ROWS4, [0.5, 1.0], [4.5, -1.0]))
    assert (low, high) == ([[0, 6], [0, 9]], [[0, 7], [0, 9]])


@pytest.mark.parametrize(
    ("taken", "weight", "expected"),
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
def test_a_weight_is_quantized_in_float32_with_ties_to_even(taken: Qparams, weight: Any, expected: Any) -> None:
    made = quantized_weight(torch.tensor(weight), taken)
    assert made.dtype == torch.float64
    assert made.tolist() == expected


@pytest.mark.parametrize("data", [(0.0, 0.0), (-100.0, 100.0), (0.25, 0.5)])
def test_a_fixed_grid_is_what_it_is_whatever_the_data(data: tuple[float, float]) -> None:
    assert observed(replace(QUINT8, fixed=(2.0**-7, 128)), *data) == (2.0**-7, 128)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_nothing_can_be_chosen_from_an_empty_tensor(axis: int | None) -> None:
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
def test_a_dynamic_range_holds_zero(grid: Grid, data: tuple[float, ...], expected: tuple[float, int]) -> None:
    made = dynamic_qparams(torch.tensor(data).double(), grid)
    assert (made.scale.tolist(), made.zero_point.tolist()) == (torch.tensor([expected[0]]).tolist(), [expected[1]])
    assert (made.scale.dtype, made.zero_point.dtype) == (torch.float32, torch.int32)


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
def test_a_dynamic_scale_below_its_floor_becomes_that(grid: Grid, data: tuple[float, ...], zero_point: int) -> None:
    made = dynamic_qparams(torch.tensor(data), grid)
    assert DYNAMIC_FLOOR == 6.1e-5
    assert made.scale.tolist() == torch.tensor([6.1e-5]).tolist()
    assert made.zero_point.tolist() == [zero_point]


def test_a_dynamic_scale_just_above_its_floor_is_kept() -> None:
    # 2**-14 is 6.1035e-5
    made = dynamic_qparams(torch.tensor([0.0, 255 * 2.0**-14]), QUINT8)
    assert made.scale.tolist() == [2.0**-14]


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
def test_a_dynamic_scale_of_zero_becomes_a_tenth_with_the_zero_point_of_the_end_that_errs_less(
    tiny: float, grid: Grid, zero_point: int
) -> None:
    made = dynamic_qparams(torch.tensor([0.0, tiny]), grid)
    assert made.scale.tolist() == torch.tensor([0.1]).tolist()
    assert made.zero_point.tolist() == [zero_point]


# 2/127 is above 2**-6, so the weight's scale is 2**-5 and its codes are 32, -16, 8, 64
WEIGHTS = [[1.0, -0.5], [0.25, 2.0]]
BIAS = [0.5, -1.0]
# 255 steps of 2**-6, 128 of them below zero
WIDE = torch.tensor([[-2.0, 1.984375], [1.984375, -2.0]])


class Functional(nn.Module):
    """A linear layer as a function of its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.tensor(WEIGHTS)), nn.Parameter(torch.tensor(BIAS))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, bias=self.bias)


@pytest.mark.parametrize("model", [One(linear(WEIGHTS, BIAS)), Functional()])
def test_a_static_linear_layer(model: nn.Module) -> None:
    inputs = [
        [1.0, 1.0],  # 1 - 0.5 + 0.5 = 1, 0.25 + 2 - 1 = 1.25
        [-0.5, 0.25],  # -0.125, -0.625
        [2.0**-8, 0.0],  # a quarter of a step is 0: 0.5, -1
        [10.0, 0.0],  # saturates at 1.984375: 2.484375, -0.50390625
    ]
    answer = evaluate(model, [WIDE], [torch.tensor(inputs)], STATIC)
    # the float model gives -2.4921875, 2.46875 and 3.484375, -4.50390625: 255 steps of more than 2**-5, and
    # 4.50390625 * 16 = 72.0625
    assert chosen(answer) == {"x": (2.0**-6, 128), "weight": (2.0**-5, 0), "output": (2.0**-4, 72)}
    # 16 and 20; -2 and -10; 8 and -16; 39.75 and -8.0625
    assert exact(answer) == [[88, 92], [70, 62], [80, 56], [112, 64]]


def test_a_tie_of_the_output_is_either_code() -> None:
    # 0.03125 + 0.5 is 8.5 steps of 2**-4; 0.25 / 32 - 1 is -15.875
    output = quantized(evaluate(One(linear(WEIGHTS, BIAS)), [WIDE], [torch.tensor([[2.0**-5, 0.0]])], STATIC))
    assert (output.low.tolist(), output.high.tolist()) == ([[80, 56]], [[81, 56]])
    assert output.position.tolist() == [[80.5, 56.125]]


def test_weights_are_rounded_and_calibration_sees_those_of_the_float_model() -> None:
    # 2**-8 is a quarter of the weight's step, 2**-6: it becomes 0. The float model gives 255.996, above 255 steps of 1
    model, data = One(linear([[1.0, 2.0**-8]])), torch.tensor([[255.0, 255.0], [0.0, 0.0]])
    answer = evaluate(model, [data], [torch.tensor([[100.0, 255.0]])], STATIC)
    assert chosen(answer) == {"x": (1.0, 0), "weight": (2.0**-6, 0), "output": (2.0, 0)}
    assert exact(answer) == [[50]]


def test_weights_have_a_scale_for_each_row() -> None:
    # 127 * 2**-7 keeps 2**-7, 100 needs 1: 0.25 of a step is 0
    scheme = replace(STATIC, weight=replace(WEIGHT, axis=0))
    model = One(linear([[127 * 2.0**-7, 2.0**-7], [100.0, 0.25]]))
    answer = evaluate(model, [torch.tensor([[0.0, 255.0]])], [torch.tensor([[0.0, 128.0]])], scheme)
    assert (answer.qparams["weight"].scale.tolist(), answer.qparams["weight"].zero_point.tolist()) == (
        [2.0**-7, 1.0],
        [0, 0],
    )
    # the outputs are 1 and 0; calibration saw 1.99 and 63.75: 255 steps of 0.25
    assert exact(answer) == [[4, 0]]


CHAINED = [[1.0, 1.0], [2.0**-5, 0.0], [-2.0, -2.0]]


def test_a_fused_pattern_is_quantized_once() -> None:
    model = One(linear(WEIGHTS, BIAS), nn.ReLU())
    answer = evaluate(model, [WIDE], [torch.tensor(CHAINED)], replace(STATIC, fused=True))
    # at most 3.484375: 255 steps of more than 2**-7
    assert chosen(answer) == {"x": (2.0**-6, 128), "weight": (2.0**-5, 0), "output": (2.0**-6, 0)}
    # 1 and 1.25; 0.53125 and less than 0; -0.5 and -5.5
    assert exact(answer) == [[64, 80], [34, 0], [0, 0]]


def test_operators_that_are_not_fused_are_quantized_each() -> None:
    model = One(linear(WEIGHTS, BIAS), nn.ReLU())
    answer = evaluate(model, [WIDE], [torch.tensor(CHAINED)], STATIC)
    assert chosen(answer) == {
        "x": (2.0**-6, 128),
        "weight": (2.0**-5, 0),
        "output": (2.0**-4, 72),
        "output 2": (2.0**-6, 0),
    }
    # 0.53125 is a tie of the first output, 0.5 or 0.5625, that is 32 or 36 of the second
    output = quantized(answer)
    assert output.low.tolist() == [[64, 80], [32, 0], [0, 0]]
    assert output.high.tolist() == [[64, 80], [36, 0], [0, 0]]


def test_batch_norm_is_folded_into_a_convolution_before_its_weight_is_quantized() -> None:
    conv = filled(nn.Conv2d(1, 2, 1), weight=[[[[1.0]]], [[[-0.515625]]]], bias=[0.5, 0.0])
    # variances and eps make 1 and 4: factors 2 and 1/2
    norm = filled(
        nn.BatchNorm2d(2, eps=0.25),
        weight=[2.0, 1.0],
        bias=[0.25, -1.0],
        running_mean=[0.5, 1.0],
        running_var=[0.75, 3.75],
    )
    data = torch.tensor([-2.0, 1.984375]).reshape(1, 1, 1, 2)
    inputs = torch.tensor([1.0, -0.5]).reshape(1, 1, 1, 2)
    answer = evaluate(One(conv, norm), [data], [inputs], replace(STATIC, fused=True))
    # weights 2 and -0.2578125, biases 0.25 and -1.5; 2/127 makes the step 2**-5, and -8.25 becomes -8: -0.25
    # calibration saw -3.75 to 4.21875, 255 steps of 2**-5
    assert chosen(answer) == {"x": (2.0**-6, 128), "weight": (2.0**-5, 0), "output": (2.0**-5, 120)}
    # 2 * x + 0.25 = 2.25, -0.75 and -0.25 * x - 1.5 = -1.75, -1.375
    assert exact(answer) == [[[[192, 96]], [[64, 76]]]]


@pytest.mark.parametrize(
    ("layer", "weight"),
    [
        (nn.Linear(2, 4), [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0], [8.0, 8.0]]),
        (nn.Conv1d(4, 4, 1, groups=2), [[[1.0], [1.0]], [[2.0], [2.0]], [[4.0], [4.0]], [[8.0], [8.0]]]),
        # (in, out / groups, …): inputs 0 and 1 give outputs 0 and 1, inputs 2 and 3 give outputs 2 and 3
        (
            nn.ConvTranspose2d(4, 4, 1, groups=2),
            [[[[1.0]], [[2.0]]], [[[1.0]], [[2.0]]], [[[4.0]], [[8.0]]], [[[4.0]], [[8.0]]]],
        ),
        (nn.ConvTranspose1d(1, 4, 1), [[[1.0], [2.0], [4.0], [8.0]]]),
    ],
)
@pytest.mark.parametrize(("bias", "moved"), [(None, [-3.0, -7.0, -15.0, -31.0]), (1.0, [-2.0, -5.0, -11.0, -23.0])])
def test_batch_norm_is_folded_into_the_outputs_of_a_layer(
    layer: nn.Module, weight: Any, bias: float | None, moved: list[float]
) -> None:
    # factors 1, 2, 4, 8; (bias - 4) * factor + 1
    norm = filled(
        nn.BatchNorm2d(4, eps=0.25),
        weight=[1.0, 2.0, 4.0, 8.0],
        bias=[1.0] * 4,
        running_mean=[4.0] * 4,
        running_var=[0.75] * 4,
    )
    with torch.no_grad():
        layer.get_parameter("weight").fill_(1.0)
        layer.register_parameter("bias", None if bias is None else nn.Parameter(torch.full((4,), bias)))
        folded_weight, folded_bias = folded(layer, norm)
    assert (folded_weight.tolist(), folded_bias.tolist()) == (weight, moved)
    assert folded_weight.dtype == torch.float32


def test_an_output_keeps_its_inputs_qparams_or_has_its_own() -> None:
    model, inputs = One(nn.ReLU()), torch.tensor([[-1.0, 1.0, 5.0]])
    shared = evaluate(model, [WIDE], [inputs], replace(STATIC, shares=ALWAYS))
    assert chosen(shared) == {"x": (2.0**-6, 128), "output": (2.0**-6, 128)}
    assert exact(shared) == [[128, 192, 255]]
    # 1.984375 is less than 255 steps of 2**-7; 5 is 1.984375 after the input's quantization
    own = evaluate(model, [WIDE], [inputs], STATIC)
    assert chosen(own) == {"x": (2.0**-6, 128), "output": (2.0**-7, 0)}
    assert exact(own) == [[0, 128, 254]]


def test_concatenated_tensors_have_the_range_of_all() -> None:
    calibration = [torch.tensor([[-2.0, 0.0]]), torch.tensor([[0.0, 1.984375]])]
    inputs = [torch.tensor([[-1.0, 3.0]]), torch.tensor([[1.0, -3.0]])]
    model = Two(lambda x, y: torch.cat([x, y], 1))
    shared = evaluate(model, calibration, inputs, replace(STATIC, shares=ALWAYS))
    assert chosen(shared) == dict.fromkeys(("x", "y", "output"), (2.0**-6, 128))
    assert exact(shared) == [[64, 255, 192, 0]]
    # by itself y is 254 steps of 2**-7 and has none below zero; x is 128 of 2**-6 below zero
    own = evaluate(model, calibration, inputs, STATIC)
    assert chosen(own) == {"x": (2.0**-6, 128), "y": (2.0**-7, 0), "output": (2.0**-6, 128)}
    assert exact(own) == [[64, 255, 192, 128]]


def test_an_observer_after_a_concatenation_sees_nothing_of_what_was_concatenated() -> None:
    calibration = [torch.tensor([[-1.0, 0.0]]), torch.tensor([[0.0, 200.0]]), torch.tensor([[0.0, 254.0]])]

    def scaled(times: int, *tensors: Tensor) -> Tensor:
        joined = torch.cat(tensors, 1)
        for _ in range(times):
            joined = joined * 2.0**-8
        return joined

    for times in range(1, 9):
        model = Three(partial(scaled, times))
        found = chosen(evaluate(model, calibration, calibration, replace(STATIC, shares=(3,))))
        assert found["output"] == (1.0, 1)
        assert found["output 2"] == (2.0**-8, 1)


# 255 steps of 2**-7, 128 of them below zero
NARROWER = [torch.tensor([[-1.0, 0.984375]])]
OWN = (2.0**-7, 128)


@pytest.mark.parametrize(
    ("op", "shares", "taken", "given", "code"),
    [
        (lambda x: x + 1.0, (1,), (2.0**-6, 64), (2.0**-6, 64), 160),  # the observer sees -1 to 1.984375
        (lambda x: torch.add(1.0, x), (1,), (2.0**-6, 64), (2.0**-6, 64), 160),
        (lambda x: torch.add(input=x, other=1.0), (1,), (2.0**-6, 64), (2.0**-6, 64), 160),
        (lambda x: x + 1.0, (), OWN, (2.0**-7, 0), 192),  # -1 to 0.984375, and 0 to 1.984375
        (lambda x: x + 1.0, (2,), OWN, (2.0**-7, 0), 192),
        (lambda x: x + x, (1,), OWN, (2.0**-6, 128), 192),  # -2 to 1.96875; one tensor given twice is two
        (lambda x: x + x, (2,), (2.0**-6, 128), (2.0**-6, 128), 192),
        # a shape is no tensor; the second column is 255 steps of 2**-8 or less and none below zero
        (lambda x: x.narrow(1, x.size(0), x.shape[0]), (1,), OWN, OWN, 192),
        (lambda x: x.narrow(1, x.size(0), x.shape[0]), (), OWN, (2.0**-8, 0), 128),
    ],
)
def test_qparams_are_kept_with_so_many_tensors(
    op: Callable[[Tensor], Tensor],
    shares: tuple[int, ...],
    taken: tuple[float, int],
    given: tuple[float, int],
    code: int,
) -> None:
    answer = evaluate(One(op), NARROWER, [torch.tensor([[0.5, 0.5]])], replace(STATIC, shares=shares))
    assert chosen(answer) == {"x": taken, "output": given}
    assert exact(answer)[0][-1] == code


def test_an_operator_in_place_leaves_the_data_as_they_are() -> None:
    calibration, inputs = WIDE.double(), torch.tensor([[-1.0, 1.0]]).double()
    answer = evaluate(One(lambda x: x.relu_()), [calibration], [inputs], replace(STATIC, shares=ALWAYS))
    assert exact(answer) == [[128, 192]]
    assert torch.equal(calibration, WIDE.double())
    assert inputs.tolist() == [[-1.0, 1.0]]


# 2/3 * 256 = 170.67; 1 is beyond the last code
SIGMOIDS = [[-3.0, 0.0, 1.0, 3.0]]


def test_fixed_qparams_are_those_of_inputs_too() -> None:
    # 255 steps of 2**-7, 128 of them below zero: everything beyond saturates; 0.9921875 / 6 + 0.5 is 85.2 steps, 1/3 is 42.7
    scheme = replace(STATIC, activation=replace(QUINT8, fixed=(2.0**-7, 128)))
    answer = evaluate(One(nn.Hardsigmoid()), [WIDE], [torch.tensor(SIGMOIDS)], scheme)
    assert chosen(answer) == {"x": (2.0**-7, 128), "output": (2.0**-7, 128)}
    assert exact(answer) == [[171, 192, 213, 213]]


def test_what_stands_before_a_pattern_has_a_grid_of_its_own() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prelude, self.op = nn.Hardtanh(-8.0, 8.0), nn.Hardsigmoid()

        def forward(self, x: Tensor) -> Any:
            return self.op(self.prelude(x))

    scheme = replace(STATIC, activation=replace(QUINT8, fixed=(2.0**-8, 0)), others=QUINT8)
    # 255 steps of 2**-4, 128 of them below zero
    answer = evaluate(Model(), [torch.tensor([[-8.0, 7.9375]])], [torch.tensor(SIGMOIDS)], scheme)
    assert chosen(answer) == {"x": (2.0**-4, 128), "output": (2.0**-4, 128), "output 2": (2.0**-8, 0)}
    assert exact(answer) == [[0, 128, 171, 255]]


@pytest.mark.parametrize(
    ("follows", "low", "high"), [(F.relu, 1, 1), (nn.ReLU(), 1, 1), (F.leaky_relu, 0, 1), (nn.LeakyReLU(), 0, 1)]
)
def test_a_tie_is_wider_where_float32_rounds(follows: Callable[[Tensor], Tensor], low: int, high: int) -> None:
    model = One(lambda x: x * (0.5 + 2.0**-15), follows)
    given = {"x": qparams(QUINT8, 1.0, 0), "output": qparams(QUINT8, 1.0, 0)}
    output = quantized(evaluate(model, [], [torch.tensor([1.0])], replace(STATIC, fused=True), given))
    assert (output.low.tolist(), output.high.tolist()) == ([low], [high])


def test_an_empty_batch_gives_no_codes_with_the_calibrated_qparams() -> None:
    answer = evaluate(One(linear(WEIGHTS, BIAS)), [WIDE], [torch.empty(0, 2)], STATIC)
    assert chosen(answer) == {"x": (2.0**-6, 128), "weight": (2.0**-5, 0), "output": (2.0**-4, 72)}
    output = quantized(answer)
    assert (output.low.shape, output.high.shape) == ((0, 2), (0, 2))


def test_nothing_is_calibrated_with_an_empty_batch() -> None:
    with pytest.raises(ValueError, match="empty tensor"):
        evaluate(One(linear(WEIGHTS, BIAS)), [torch.empty(0, 2)], [WIDE], STATIC)


@pytest.mark.parametrize(
    ("model", "data", "ptq", "qat"),
    [
        # the step of the weight is 2**-6, 2**-8 becomes 0: 255 where the float model gives 255.996
        (One(linear([[1.0, 2.0**-8]])), [[0.0, 0.0], [255.0, 255.0]], 2.0, 1.0),
        # 204.25 becomes 204: 255 where the float model gives 255.3125
        (One(lambda x: x * 1.25), [[0.0, 204.25]], 2.0, 1.0),
        # the same of another operator's output: 10.75 is 172 steps of 2**-4
        (One(lambda x: x * 19.0, lambda x: x * 1.25), [[0.0, 10.75]], 2.0, 1.0),
    ],
)
def test_calibration_of_a_model_for_qat_sees_fake_quantized_values(
    model: nn.Module, data: list[list[float]], ptq: float, qat: float
) -> None:
    for scheme, scale in ((STATIC, ptq), (replace(STATIC, qat=True), qat)):
        answer = evaluate(model, [torch.tensor(data)], [torch.tensor(data)], scheme)
        assert quantized(answer).qparams.scale.tolist() == [scale]


GIVEN = {
    "x": qparams(QINT8, 0.75, 10),
    "weight": qparams(replace(WEIGHT, zero_point="affine"), 0.3125, 3),
    "output": qparams(QUINT8, 1.5, 5),
}


def test_given_qparams_are_taken_as_they_are() -> None:
    # x: 3 / 0.75 = 4 and round(-2 / 0.75) = -3, that is 3 and -2.25
    # weight: round(1 / 0.3125) = 3 and round(2 / 0.3125) = 6, that is 0.9375 and 1.875
    # 2.8125 - 4.21875 + 2.90625 = 1.5, one step; and 2.25 more is a tie
    model, inputs = One(linear([[1.0, 2.0], [1.0, 2.0]], [2.90625, 5.15625])), torch.tensor([[3.0, -2.0]])
    answer = evaluate(model, [], [inputs], STATIC, GIVEN)
    assert all(answer.qparams[name] is one for name, one in GIVEN.items())
    output = quantized(answer)
    assert output.qparams is GIVEN["output"]
    assert (output.low.tolist(), output.high.tolist()) == ([[6, 7]], [[6, 8]])


@pytest.mark.parametrize("missing", GIVEN)
def test_missing_qparams_are_named(missing: str) -> None:
    some = {name: one for name, one in GIVEN.items() if name != missing}
    with pytest.raises(NotCovered, match=f"no qparams of {missing} among {', '.join(some)}"):
        evaluate(One(linear([[1.0, 2.0]])), [], [torch.tensor([[3.0, -2.0]])], STATIC, some)


def test_static_quantization_without_integers_is_not_covered() -> None:
    with pytest.raises(NotCovered, match="without integers"):
        evaluate(One(linear(WEIGHTS, BIAS)), [WIDE], [WIDE], replace(STATIC, activation=None))


UNIT = {"x": qparams(QUINT8, 1.0, 0), "output": qparams(QUINT8, 1.0, 0), "output 2": qparams(QUINT8, 1.0, 0)}


def twice() -> One:
    layer = linear([[1.5]])
    return One(layer, layer)


@pytest.mark.parametrize(
    ("model", "value", "low", "high"),
    [
        (twice(), 1.0, 1, 3),  # 1.5 is 1 or 2, of which 1.5 follows, 1 or 2, or 3
        (twice(), 2.0, 4, 5),  # 3, then 4.5
        (twice(), 4.0, 9, 9),  # 6, then 9
        (twice(), 0.5, 0, 3),  # a tie of the input: 0, or 1 and all that follows from it
    ],
)
def test_a_tie_lets_what_follows_be_either(model: nn.Module, value: float, low: int, high: int) -> None:
    weight = qparams(WEIGHT, 2.0**-6, 0)
    given = {**UNIT, "weight": weight, "weight 2": weight}
    output = quantized(evaluate(model, [], [torch.tensor([[value]])], STATIC, given))
    assert (output.low.tolist(), output.high.tolist()) == ([[low]], [[high]])


def test_what_is_called_twice_has_qparams_of_each_call() -> None:
    # at most 255, 382.5 and 573.75: 255 steps of 1, 2 and 4
    answer = evaluate(twice(), [torch.tensor([[255.0]])], [torch.tensor([[4.0]])], STATIC)
    assert chosen(answer) == {
        "x": (1.0, 0),
        "weight": (2.0**-6, 0),
        "output": (2.0, 0),
        "weight 2": (2.0**-6, 0),
        "output 2": (4.0, 0),
    }
    # 6, that is 3 steps; 9 is 2.25 steps
    assert exact(answer) == [[2]]


# 255 steps of 2**-6, 64 of them below zero; 2**-8 is a quarter of one and becomes 0
CALLED = torch.tensor([[-1.0, 2.984375, 2.0**-8], [0.0, 0.0, 0.0]])


def test_a_dynamic_linear_layer_chooses_qparams_for_what_it_is_called_with() -> None:
    model = One(linear([[1.0, 0.5, 2.0], [2.0**-7, -1.0, 0.0]], [0.25, 0.0]))
    answer = evaluate(model, [], [CALLED], DYNAMIC)
    # 2/127 makes the weight's step 2**-5, a quarter of it becomes 0
    assert chosen(answer) == {"weight": (2.0**-5, 0)}
    # -1 + 1.4921875 + 0.25 and -2.984375
    assert values(answer) == [[0.7421875, -2.984375], [0.25, 0.0]]


@pytest.mark.parametrize(("data", "expected"), [([[0.25, 255.0]], [[0.0]]), ([[0.25, 2.0]], [[0.25098039215686274]])])
def test_a_dynamic_layers_qparams_are_those_of_the_whole_call(
    data: list[list[float]], expected: list[list[float]]
) -> None:
    # 0.25 is a quarter of 255/255, and round(31.875) = 32 steps of 2/255
    answer = evaluate(One(linear([[1.0, 0.0]])), [], [torch.tensor(data)], DYNAMIC)
    assert values(answer) == [[pytest.approx(expected[0][0], abs=1e-7)]]


def test_a_dynamic_layer_takes_the_weights_qparams_that_are_given() -> None:
    given = {"weight": qparams(WEIGHT, 0.25, 0)}
    # half a step of the weight becomes 0, as ties of weights go to even; one and a half become two
    answer = evaluate(One(linear([[0.125, 0.375, 0.0]])), [], [CALLED], DYNAMIC, given)
    assert answer.qparams["weight"] is given["weight"]
    assert values(answer) == [[0.5 * 2.984375], [0.0]]
    with pytest.raises(NotCovered, match="no qparams of weight among x"):
        evaluate(One(linear([[0.125, 0.375, 0.0]])), [], [CALLED], DYNAMIC, {"x": given["weight"]})


def test_a_dynamic_layer_called_with_an_empty_batch_gives_nothing() -> None:
    (output,) = evaluate(One(linear(WEIGHTS, BIAS)), [], [torch.empty(0, 2)], DYNAMIC).outputs
    assert isinstance(output, Tensor)
    assert (output.shape, output.dtype) == ((0, 2), torch.float64)


def test_half_weights_are_rounded_to_float16_and_nothing_else_is() -> None:
    # 11 bits: 1 + 2**-10 is kept, a half of that is a tie and goes to even
    weight = [[1.0 + 2.0**-10, 0.0], [1.0 + 2.0**-11, 0.0], [1.0 + 3 * 2.0**-11, 0.0], [1.0 + 2.0**-12, 1.0]]
    model, inputs = One(linear(weight, [2.0**-20] * 4)), torch.tensor([[1.0, 2.0**-20]])
    answer = evaluate(model, [], [inputs], Scheme("dynamic", None, None, half=True))
    assert not answer.qparams
    rounded = [1.0 + 2.0**-10, 1.0, 1.0 + 2.0**-9, 1.0 + 2.0**-20]
    assert values(answer) == [[one + 2.0**-20 for one in rounded]]


def test_the_input_and_the_state_of_a_dynamic_cell_are_quantized_each() -> None:
    model = Two(
        filled(
            nn.RNNCell(3, 2, nonlinearity="relu"),
            weight_ih=[[1.0, 0.5, 1.0], [0.0, -1.0, 0.0]],
            weight_hh=[[2.0, 1.0], [0.0, 0.5]],
            bias_ih=[0.25, 0.5],
            bias_hh=[0.5, 0.25],
        )
    )
    # of the state, 255 steps of 2**-8, 2**-10 is a quarter of one
    state = torch.tensor([[0.99609375, 2.0**-10], [0.0, 0.5]])
    answer = evaluate(model, [], [CALLED, state], DYNAMIC)
    assert chosen(answer) == {"weight": (2.0**-6, 0), "weight 2": (2.0**-5, 0)}
    # -1 + 1.4921875 + 0.25 + 1.9921875 + 0.5 and -2.984375 + 0.75; 0.25 + 0.5 + 0.5 and 0.5 + 0.25 + 0.25
    assert values(answer) == [[3.234375, 0.0], [1.25, 1.0]]


def test_the_state_of_a_cell_may_be_a_keyword() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            cell = nn.RNNCell(1, 1, bias=False, nonlinearity="relu")
            self.op = filled(cell, weight_ih=[[1.0]], weight_hh=[[1.0]])

        def forward(self, x: Tensor, h: Tensor) -> Any:
            return self.op(x, hx=h)

    data = [torch.tensor([[255.0]]), torch.tensor([[510.0]])]
    assert values(evaluate(Model(), [], data, DYNAMIC)) == [[765.0]]


@pytest.mark.parametrize("grid", [ROWS8, ROWS4])
def test_rows_of_an_embedding_have_each_its_range(grid: Grid) -> None:
    table, taken, expected = {
        ROWS8: (
            # a quarter of 2**-6 becomes 0; half of 2**-7 is a tie and becomes 0 too
            [[-1.0, 2.984375, 0.50390625], [0.5, 2.4921875, 1.00390625], [0.75, 0.75, 0.75]],
            ([2.0**-6, 2.0**-7, 1.0], [64.0, -64.0, -0.75]),
            [[-1.0, 2.984375, 0.5], [0.5, 2.4921875, 1.0], [0.75, 0.75, 0.75]],
        ),
        ROWS4: (
            # 7.25 becomes 7, with an offset of -2048 for -2049 in float16; 3.5 is a tie and becomes 4, that is 0.5
            [[-2049.0, -2034.0, -2041.75], [-1.5, 6.0, 0.25], [-0.75, -0.75, -0.75]],
            ([1.0, 0.5, 1.0], [2049.0, 3.0, 0.75]),
            [[-2048.0, -2033.0, -2041.0], [-1.5, 6.0, 0.5], [-0.75, -0.75, -0.75]],
        ),
    }[grid]
    model = One(filled(nn.Embedding(3, 3), weight=table))
    answer = evaluate(model, [], [torch.tensor([[1, 0], [2, 1]])], Scheme("weight", None, grid))
    weight = answer.qparams["weight"]
    assert (weight.scale.tolist(), weight.zero_point.tolist()) == taken
    assert values(answer) == [[expected[1], expected[0]], [expected[2], expected[1]]]


# each row is on the grid of its own
ROWS = [[1.0, 2.0], [4.0, -8.0], [16.0, 0.5], [-2.0, 32.0]]
NONE = [0.0, 0.0]


@pytest.mark.parametrize(
    ("options", "indices", "offsets", "expected"),
    [
        ({"mode": "sum"}, [0, 1, 2, 3], [0, 2, 2], [[5.0, -6.0], NONE, [14.0, 32.5]]),
        ({"mode": "mean"}, [0, 1, 2, 3], [0, 2, 2], [[2.5, -3.0], NONE, [7.0, 16.25]]),
        ({"mode": "max"}, [0, 1, 2, 3], [0, 2, 2], [[4.0, 2.0], NONE, [16.0, 32.0]]),
        ({"mode": "sum"}, [1, 1, 0], [0, 0, 3], [NONE, [9.0, -14.0], NONE]),
        ({"mode": "sum", "padding_idx": 1}, [0, 1, 2, 3, 1], [0, 2, 4], [[1.0, 2.0], [14.0, 32.5], NONE]),
        ({"mode": "mean", "padding_idx": 1}, [0, 1, 2, 3, 1], [0, 2, 4], [[1.0, 2.0], [7.0, 16.25], NONE]),
        ({"mode": "max", "padding_idx": 1}, [3, 1, 2, 1, 1], [0, 2, 4], [[-2.0, 32.0], [16.0, 0.5], NONE]),
        ({"mode": "max", "padding_idx": 0}, [1], [0], [[4.0, -8.0]]),
        ({"mode": "sum", "include_last_offset": True}, [0, 1, 2, 3], [0, 2, 4], [[5.0, -6.0], [14.0, 32.5]]),
        ({"mode": "sum", "include_last_offset": True}, [0, 1, 2, 3], [0, 2, 3], [[5.0, -6.0], [16.0, 0.5]]),
        ({"mode": "mean", "include_last_offset": True}, [0, 1, 2, 3], [0, 0, 4], [NONE, [4.75, 6.625]]),
    ],
)
def test_bags_are_rows_reduced(
    options: Mapping[str, Any], indices: list[int], offsets: list[int], expected: list[list[float]]
) -> None:
    model = Two(filled(nn.EmbeddingBag(4, 2, **options), weight=ROWS))
    assert values(evaluate(model, [], [torch.tensor(indices), torch.tensor(offsets)], BAGS)) == expected


@pytest.mark.parametrize(
    ("mode", "expected"), [("sum", [[5.0, -6.0], [14.0, 32.5]]), ("max", [[4.0, 2.0], [16.0, 32.0]])]
)
def test_rows_of_indices_are_bags(mode: str, expected: list[list[float]]) -> None:
    model = One(filled(nn.EmbeddingBag(4, 2, mode=mode), weight=ROWS))
    assert values(evaluate(model, [], [torch.tensor([[0, 1], [2, 3]])], BAGS)) == expected


def test_no_rows_of_indices_are_no_bags() -> None:
    model = One(filled(nn.EmbeddingBag(4, 2, mode="sum"), weight=ROWS))
    (output,) = evaluate(model, [], [torch.zeros(0, 3, dtype=torch.int64)], BAGS).outputs
    assert isinstance(output, Tensor)
    assert output.shape == (0, 2)


@pytest.mark.parametrize(
    ("padding", "expected"), [(None, [[8.5, -15.0], NONE, [-18.0, 31.5]]), (1, [[0.5, 1.0], NONE, [-18.0, 31.5]])]
)
def test_rows_are_weighted_by_sample(padding: int | None, expected: list[list[float]]) -> None:
    # half of row 0 and twice row 1; row 3 less row 2
    model = Three(filled(nn.EmbeddingBag(4, 2, mode="sum", padding_idx=padding), weight=ROWS))
    inputs = [torch.tensor([0, 1, 2, 3]), torch.tensor([0, 2, 2]), torch.tensor([0.5, 2.0, -1.0, 1.0])]
    assert values(evaluate(model, [], inputs, BAGS)) == expected


def test_bags_are_made_of_quantized_rows() -> None:
    # the second row's step is 0.5, and 3.5 becomes 4: 0.5 for 0.25
    model = One(filled(nn.EmbeddingBag(2, 3, mode="sum"), weight=[[0.0, 15.0, 7.25], [-1.5, 6.0, 0.25]]))
    answer = evaluate(model, [], [torch.tensor([[0, 1], [1, 1]])], Scheme("weight", None, ROWS4))
    assert values(answer) == [[-1.5, 21.0, 7.5], [-3.0, 12.0, 1.0]]


def waves(*shape: int, phase: float = 0.0) -> Tensor:
    """Some values of both signs, none like another."""
    return torch.sin(torch.arange(1, 1 + torch.Size(shape).numel()).double() * 1.7 + phase).reshape(shape)


def waving(module: M) -> M:
    with torch.no_grad():
        for number, parameter in enumerate(module.double().parameters()):
            parameter.copy_(waves(*parameter.shape, phase=number))
    return module


def plainly(module: nn.Module) -> Product:
    return lambda x, name, bias: F.linear(x, module.get_parameter(name), bias)


LAYERS: list[tuple[type[nn.RNNBase], dict[str, Any]]] = [
    *(
        (kind, options)
        for kind in (nn.LSTM, nn.GRU)
        for options in (
            {},
            {"num_layers": 2},
            {"bidirectional": True},
            {"num_layers": 2, "bidirectional": True},
            {"num_layers": 2, "bidirectional": True, "batch_first": True},
            {"bias": False},
        )
    ),
    (nn.LSTM, {"proj_size": 2}),
    (nn.LSTM, {"proj_size": 2, "num_layers": 2, "bidirectional": True, "bias": False, "batch_first": True}),
]


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("kind", "options"), LAYERS)
def test_recurrent_layers_compute_what_torchs_do(
    kind: type[nn.RNNBase], options: dict[str, Any], batched: bool, stateful: bool
) -> None:
    build: Any = kind
    module = waving(build(3, 4, **options))
    batch = (5,) if batched else ()
    x = waves(*batch, 6, 3) if options.get("batch_first") else waves(6, *batch, 3)
    state: Any = None
    if stateful:
        count = module.num_layers * (2 if module.bidirectional else 1)
        h, c = waves(count, *batch, module.proj_size or 4, phase=0.5), waves(count, *batch, 4, phase=0.9)
        state = (h, c) if kind is nn.LSTM else h
    torch.testing.assert_close(layers(module, plainly(module), x, state), module(x, state), rtol=0, atol=1e-12)


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("batch", [(), (5,)])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.LSTMCell, {}),
        (nn.LSTMCell, {"bias": False}),
        (nn.GRUCell, {}),
        (nn.GRUCell, {"bias": False}),
        (nn.RNNCell, {}),
        (nn.RNNCell, {"nonlinearity": "relu"}),
        (nn.RNNCell, {"nonlinearity": "relu", "bias": False}),
    ],
)
def test_recurrent_cells_compute_what_torchs_do(
    kind: type[nn.RNNCellBase], options: dict[str, Any], batch: tuple[int, ...], stateful: bool
) -> None:
    build: Any = kind
    module = waving(build(3, 4, **options))
    x = waves(*batch, 3)
    state: Any = None
    if stateful:
        h, c = waves(*batch, 4, phase=0.5), waves(*batch, 4, phase=0.9)
        state = (h, c) if kind is nn.LSTMCell else h
    torch.testing.assert_close(cell(module, plainly(module), x, state), module(x, state), rtol=0, atol=1e-12)


def test_a_layer_multiplies_its_sequence_at_once_and_its_state_at_every_step() -> None:
    module, multiplied = waving(nn.LSTM(3, 4, num_layers=2, proj_size=2)), []

    def product(x: Tensor, name: str, bias: Tensor | None) -> Tensor:
        multiplied.append((name, tuple(x.shape)))
        return plainly(module)(x, name, bias)

    layers(module, product, waves(2, 5, 3))
    each = [("weight_hh_l0", (5, 2)), ("weight_hr_l0", (5, 4))]
    after = [("weight_hh_l1", (5, 2)), ("weight_hr_l1", (5, 4))]
    assert multiplied == [("weight_ih_l0", (2, 5, 3)), *each, *each, ("weight_ih_l1", (2, 5, 2)), *after, *after]


ORACLE = sorted((ROOT / "conformance" / "oracle").glob("*.py"))


def imports(tree: ast.AST, path: Path) -> set[str]:
    """Full names of what a file imports: of a module, and of each name from one."""
    found = set()
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            beside = package[: len(package) - node.level + 1] if node.level else ()
            found |= {".".join((*beside, *filter(None, [node.module]), alias.name)) for alias in node.names}
    return found


@pytest.mark.parametrize("path", ORACLE, ids=lambda path: path.name)
def test_the_oracle_imports_nothing_of_what_it_judges(path: Path) -> None:
    found = imports(ast.parse(path.read_text()), path)
    assert found
    own = ("conformance.oracle.",)
    for name in found:
        assert not f"{name}.".startswith("torch.ao."), name
        assert not name.startswith(("conformance", "configs")) or name.startswith(own), name


@pytest.mark.parametrize("path", ORACLE, ids=lambda path: path.name)
def test_the_oracle_calls_no_quantized_operator(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = imports(tree, path)
    names |= {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)}
    judged = ("quantize_per", "fake_quantize", "torch.ops", "torch.ao", "import_module", "__import__")
    for name in names:
        assert not any(part in name for part in judged), name
