"""The exact results of a statically quantized model for given inputs, before its output is quantized."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .arithmetic import EXACT_BAND, Codes, Qparams, quantize
from .calibration import cloned
from .graph import Graph, value_of
from .interpreter import Interpreter
from .scheme import Scheme

ROUNDINGS = 16
"""The most float32 roundings of a function, as for `FLOAT_BAND`, each of half a unit in the last place."""

GREATEST_CONSTANT = 8.0
"""The greatest value inside of a function whose inputs are small, such as the 6 of hardswish."""


class Sweep:
    """A statically quantized model whose inputs lie on their grids already.

    Operators before the pattern must pass on the values of their inputs.
    """

    def __init__(self, model: nn.Module, scheme: Scheme) -> None:
        self.graph = Graph(model, scheme)

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, bool]:
        """Return the model's result (float64) for dequantized inputs (float64), and whether its operators are dyadic."""
        interpreter = Interpreter(self.graph, {}, None)
        interpreter.set_inputs(inputs)
        band = EXACT_BAND
        values: Any = inputs[0]
        with torch.no_grad():
            for group in self.graph.groups:
                arguments = {node: value_of(interpreter.values, node) for node in group.inputs}
                values, band = interpreter.evaluate(group, cloned(arguments))
                interpreter.values[group.result] = values
        return values, band == EXACT_BAND


def quantized(results: Tensor, magnitude: Tensor, qparams: Qparams) -> Codes:
    """Quantize results (float64) in the order of `qparams.grid.axis`, with ties as wide as float32 arithmetic errs.

    `magnitude` (float64, one for each index of the axis) is the greatest absolute value of any operand or intermediate value.
    Each of at most `ROUNDINGS` roundings errs by 2**-24 of it, and each of those in the quantization (division by the scale,
    addition of the zero point) by 2**-24 of the greatest position that does not saturate, 256 (Higham, "Accuracy and
    Stability of Numerical Algorithms", 2002, section 3.1: errors of a sequence of operations add up).
    """
    scale, _ = qparams.like(results)
    shape = scale.shape
    band = ROUNDINGS * 2.0**-24 * (magnitude.reshape(shape) / scale + 256.0)
    return quantize(results, qparams, band)
