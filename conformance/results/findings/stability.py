"""Findings about repetitions that change the output, and about writes to inputs."""

from .finding import Finding


class WritesToInput(Finding, kind="writes-to-input"):
    """A kernel, or the whole program (None), writes to a tensor argument, which its schema does not declare."""

    kernel: str | None
    argument: int

    @property
    def text(self) -> str:
        if self.kernel is None:
            return f"the program writes to its input {self.argument}"
        return f"{self.kernel} writes to its tensor {self.argument}"


class RepetitionShape(Finding, kind="repetition-shape"):
    """A repetition of the execution changes the shape of an output."""

    repetition: str
    shape: tuple[int, ...]
    template = "{repetition} changes the shape to {shape}"


class RepetitionValues(Finding, kind="repetition-values"):
    """A repetition of the execution changes values of an output. The counts are None where they differ from run to run."""

    repetition: str
    changed: int | None
    total: int | None

    @property
    def text(self) -> str:
        count = "" if self.changed is None else f"{self.changed} of {self.total} "
        return f"{self.repetition} changes {count}values"
