"""Findings about stages that raise, and about processes that die."""

from dataclasses import dataclass
from typing import ClassVar

from .finding import Finding

WORDS = {
    "float": "the pattern cannot occur: the float model",
    "calibrate": "the observed model",
    "reference": "convert_to_reference",
    "reference execution": "the reference model",
}
"""Subjects of sentences about stages, where the subject is not the name of the stage."""


@dataclass(frozen=True)
class Raises(Finding, kind="raises"):
    """A stage raises an exception of this type; `message` is the first line of its message.

    Stages are `float`, `prepare`, `calibrate`, `reference`, `reference execution`, `lower`, `execute`, repetitions of the
    execution by their names, and metamorphic relations by theirs.
    """

    stage: str
    exception: str
    message: str

    @property
    def text(self) -> str:
        return f"{WORDS.get(self.stage, self.stage)} raises {self.exception}: {self.message}"


@dataclass(frozen=True)
class FurtherInputs(Finding, kind="further-inputs"):
    """The finding before this one, of the same check, is about inputs of other shapes than the run is calibrated with;
    `operands` are the names and shapes of all of them. `data` is the range that they have and that the model is calibrated
    with, as in a variant: the number of codes below zero, and the binary exponent of a step. Without it they have that of the
    run's variant."""

    separator: ClassVar[str] = ", "
    operands: tuple[tuple[str, tuple[int, ...]], ...]
    data: str = ""

    @property
    def text(self) -> str:
        below, _, exponent = self.data.partition(":")
        ranged = f", {below} codes are below zero and a step is 2**{exponent}" if below.isdecimal() else ""
        return f"where {' and '.join(f'{name} is of shape {shape}' for name, shape in self.operands)}{ranged}"


@dataclass(frozen=True)
class Crashes(Finding, kind="crashes"):
    """The process of the run ends by a signal, exits, or hangs."""

    reason: str

    @property
    def text(self) -> str:
        return self.reason
