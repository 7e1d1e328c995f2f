"""The scales and zero points that are tried."""

import torch
from torch import Tensor

from conformance.oracle.arithmetic import OBSERVER_FLOOR, RANGES, Qparams
from conformance.oracle.scheme import Grid

SCALES = (2.0**-4, 0.05, 0.0123, 1 / 3, 2.0**-8, 0.1171875, 7.3e-4, 1.7, 0.0271, 2.0**-12, 23.0)
"""Scales of inputs: dyadic ones and others, of data between thousandths and thousands. Their number is prime, as are those of
the other lists, so that every combination of two occurs."""

RATIOS = (1.0, 0.31, 0.125, 5.7, 0.97, 0.013, 0.6)
"""Scales of a second input, in scales of the first."""

LAYER_SCALES = (2.0**-5, 2.0**-6, 2.0**-7)
"""Scales of the input of a layer: with them a bias lies on the accumulator's grid. Only the product with the scale of the
weight, relative to the scale of the output, counts for the rest. No two turns in succession have the same one, because
QNNPACK would use the output's scale of the first for the second."""

STRETCHES = (1.0, 0.37, 2.3, 0.5, 0.071, 1.13, 8.0, 0.0071, 0.77, 3.1, 0.2, 57.0, 0.9)
"""Scales of outputs, in scales at which the greatest and the least result fit: smaller ones saturate, greater ones use few
codes."""

ZERO_POINTS = (0.5, 0.0, 1.0, 0.29, 0.004)
"""Zero points of inputs, as a part of the range of codes: its ends, inside, and beside an end."""

OUTPUT_ZERO_POINTS = (0.0, 0.5, 0.23, 1.0, 0.996, 0.004, 0.7)


def _zero_point(part: float, grid: Grid) -> int:
    return grid.low + round(part * (grid.high - grid.low))


def whole(grid: Grid) -> Grid:
    """A grid with all codes of its dtype."""
    return Grid(grid.dtype, *RANGES[grid.dtype], floor=grid.floor)


FLOAT_STEPS = 2**15
"""Steps of the greatest float result: few enough that the roundings of float32 seldom decide between two of them."""


def stacked(scales: list[float], zero_points: list[int], grid: Grid) -> Qparams:
    """Qparams of several turns, in their order."""
    by_turn = Grid(grid.dtype, grid.low, grid.high, axis=0)
    floor = OBSERVER_FLOOR if grid.floor is None else grid.floor
    scale = torch.tensor(scales, dtype=torch.float64).clamp(min=floor).float()
    return Qparams(by_turn, scale, torch.tensor(zero_points, dtype=torch.int32))


def of_operand(number: int, turns: int, grid: Grid, *, layer: bool) -> Qparams:
    """The qparams of an operand in each turn."""
    if layer and number == 0:
        scales = [LAYER_SCALES[turn % len(LAYER_SCALES)] for turn in range(turns)]
    else:
        choices = LAYER_SCALES if layer else SCALES
        scales = [choices[turn % len(choices)] for turn in range(turns)]
        if number:
            scales = [scale * RATIOS[(turn + number - 1) % len(RATIOS)] for turn, scale in enumerate(scales)]
    shifted = range(2 * number, 2 * number + turns)
    return stacked(scales, [_zero_point(ZERO_POINTS[turn % len(ZERO_POINTS)], grid) for turn in shifted], grid)


def of_output(least: Tensor, greatest: Tensor, grid: Grid) -> Qparams:
    """The qparams of an output in each turn, whose results are between `least` and `greatest` (one for each turn).

    In every third turn the scale is a power of two, so that sums of dyadic values have ties.
    """
    fitting = (greatest.clamp(min=0.0) - least.clamp(max=0.0)) / (grid.high - grid.low)
    scales = []
    for turn, scale in enumerate(fitting.tolist()):
        stretched = scale * STRETCHES[turn % len(STRETCHES)] or 1.0
        scales.append(2.0 ** round(torch.log2(torch.tensor(stretched)).item()) if turn % 3 == 2 else stretched)
    parts = [OUTPUT_ZERO_POINTS[turn % len(OUTPUT_ZERO_POINTS)] for turn in range(len(scales))]
    return stacked(scales, [_zero_point(part, grid) for part in parts], grid)


def of_floats(greatest: Tensor) -> Qparams:
    """Qparams for float results in each turn, whose absolute values are at most `greatest` (one for each turn)."""
    scales = (greatest / FLOAT_STEPS).tolist()
    return stacked(
        [scale or 1.0 for scale in scales], [0] * len(scales), Grid("qint32", *RANGES["qint32"], floor=2.0**-149)
    )
