"""Findings about repetitions that change the output, and about writes to inputs."""

from dataclasses import dataclass

from .finding import Finding


@dataclass(frozen=True)
class WritesToInput(Finding, kind="writes-to-input"):
    """A kernel, or the whole program (None), writes to a tensor argument, which its schema does not declare."""

    kernel: str | None
    argument: int

    @property
    def text(self) -> str:
        if self.kernel is None:
            return f"the program writes to its input {self.argument}"
        return f"{self.kernel} writes to its tensor {self.argument}"


@dataclass(frozen=True)
class RepetitionShape(Finding, kind="repetition-shape"):
    """A repetition of the execution changes the shape of an output."""

    repetition: str
    shape: tuple[int, ...]

    @property
    def text(self) -> str:
        return f"{self.repetition} changes the shape to {self.shape}"


@dataclass(frozen=True)
class RepetitionValues(Finding, kind="repetition-values"):
    """A repetition of the execution changes values of an output. The counts are None where they differ from run to run."""

    repetition: str
    changed: int | None
    total: int | None

    @property
    def text(self) -> str:
        count = "" if self.changed is None else f"{self.changed} of {self.total} "
        return f"{self.repetition} changes {count}values"
