"""Models, grids and schemes for the oracle's tests, and functions that read an answer."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from conformance.oracle import Answer, Codes, Qparams
from conformance.oracle.arithmetic import (
    EXACT_BAND,
    quantize,
)
from conformance.oracle.scheme import Grid, Scheme

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
    """Qparams with one scale and zero point, or with one for each index of the axis."""
    zero_points = torch.tensor(zero_point).reshape(-1)
    return Qparams(
        grid, torch.tensor(scale).reshape(-1), zero_points if grid.zero_point == "float" else zero_points.int()
    )


def codes_of(values: Any, qparams: Qparams, band: float = EXACT_BAND, *, simulated: bool = False) -> tuple[Any, Any]:
    """The lower and upper codes of quantized values, as nested lists."""
    codes = quantize(torch.tensor(values, dtype=torch.float64), qparams, band, simulated=simulated)
    return codes.low.tolist(), codes.high.tolist()


def with_parameters(layer: M, **values: Any) -> M:
    """Set parameters and buffers of a layer and return it in eval mode."""
    with torch.no_grad():
        for name, value in values.items():
            getattr(layer, name).copy_(torch.tensor(value))
    return layer.eval()


def linear(weight: list[list[float]], bias: list[float] | None = None) -> nn.Linear:
    values = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    return with_parameters(nn.Linear(len(weight[0]), len(weight), bias is not None), **values)


class SequentialSteps(nn.Module):
    """A model with one input, which passes through modules and functions in order."""

    def __init__(self, *steps: Callable[[Any], Any]) -> None:
        super().__init__()
        self.steps = steps
        self.layers = nn.ModuleList(step for step in steps if isinstance(step, nn.Module))

    def forward(self, x: Tensor) -> Any:
        for step in self.steps:
            x = step(x)
        return x


class TwoInputs(nn.Module):
    """A model that applies a function to its two inputs."""

    def __init__(self, op: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.op(x, y)


class ThreeInputs(nn.Module):
    """A model that applies a function to its three inputs."""

    def __init__(self, op: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Any:
        return self.op(x, y, z)


def only_output(answer: Answer) -> Codes:
    """The only output, which is quantized."""
    (output,) = answer.outputs
    assert isinstance(output, Codes)
    return output


def only_codes(answer: Answer) -> Any:
    """The codes of the only output, which has no ties."""
    output = only_output(answer)
    assert not bool(output.tied.any())
    return output.low.tolist()


def only_values(answer: Answer) -> Any:
    """The values of the only output, which is float."""
    (output,) = answer.outputs
    assert isinstance(output, Tensor)
    assert output.dtype == torch.float64
    return output.tolist()


def qparams_of(answer: Answer) -> dict[str, tuple[float, float]]:
    """Scale and zero point of each per-tensor quantized tensor, by name."""
    return {name: (qparams.scale.item(), qparams.zero_point.item()) for name, qparams in answer.qparams.items()}


# 2/127 is above 2**-6, so the weight's scale is 2**-5 and its codes are 32, -16, 8, 64
WEIGHTS = [[1.0, -0.5], [0.25, 2.0]]
BIAS = [0.5, -1.0]
# 255 steps of 2**-6, 128 of them below zero
WIDE = torch.tensor([[-2.0, 1.984375], [1.984375, -2.0]])
