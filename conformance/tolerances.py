"""The one table of tolerances wider than a tie: operator, engine, how wide, and why."""

import fnmatch
from dataclasses import dataclass

from .cases import Run

TIE_BAND = 2.0**-10
"""Steps around .5 within which an exact value counts as a tie. For dyadic operators the value is exact and only .5 itself
lies within; for the others it covers float32's own error, some 2**-22 of the greatest code, 255."""


@dataclass(frozen=True)
class Tolerance:
    """`steps` of the output's grid, or `relative` to the greatest value where the output is float."""

    operator: str
    engine: str
    reason: str
    steps: int = 0
    relative: float = 0.0


TABLE = (
    *(
        Tolerance(
            operator,
            "*",
            relative=0.25,
            reason="the kernels quantize the hidden state at every step, and the input to 7 bits, which the reference model "
            "does not: a rounding that falls differently moves single values by up to 0.16 at an SQNR of 30 dB",
        )
        for operator in ("nn.LSTM", "nn.GRU", "nn.LSTMCell", "nn.GRUCell", "nn.RNNCell")
    ),
)
NONE = Tolerance("*", "*", "equal, ties aside")


def tolerance(operator: str, run: Run) -> Tolerance:
    """Return the table's row for an operator on the run's engine, or none at all."""
    return next((t for t in TABLE if t.operator == operator and fnmatch.fnmatchcase(run.engine, t.engine)), NONE)
