"""Findings about stages that do not end as they should."""

from dataclasses import dataclass

from .finding import Finding

WORDS = {
    "float": "the pattern cannot occur: the float model",
    "calibrate": "the observed model",
    "reference": "convert_to_reference",
    "reference execution": "the reference model",
}
"""What a sentence calls a stage, where that is not the stage's name."""


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
class Crashes(Finding, kind="crashes"):
    """The process of the run ends by a signal, exits, or hangs."""

    reason: str

    @property
    def text(self) -> str:
        return self.reason
