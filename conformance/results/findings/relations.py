"""Findings about metamorphic relations that an engine breaks: `relation` is the relation's name.

A relation whose evaluation raises is a `Raises` with the relation's name as its stage.
"""

from .finding import Described, Finding


class RelationOutputs(Finding, kind="relation-outputs"):
    """The related execution has another number of outputs."""

    relation: str
    got: int
    expected: int
    template = "{relation} changes the number of outputs from {expected} to {got}"


class RelationShape(Finding, kind="relation-shape"):
    """An output of the related execution has another shape."""

    relation: str
    output: int
    got: tuple[int, ...]
    expected: tuple[int, ...]

    @property
    def text(self) -> str:
        return f"{self.relation} changes the shape{_of(self.output)} from {self.expected} to {self.got}"


class RelationValues(Finding, kind="relation-values"):
    """An output of the related execution has other values: `changed` of `total`, the first at `index`."""

    relation: str
    output: int
    changed: int
    total: int
    index: tuple[int, ...]
    got: float
    expected: float

    @property
    def text(self) -> str:
        values = f"{self.got:g}, not {self.expected:g}"
        return (
            f"{self.relation} changes {self.changed} of {self.total} values{_of(self.output)},"
            f" first at {self.index}: {values}"
        )


class RelationVaries(Finding, kind="relation-varies"):
    """A repeated call has other values. Which ones differs from run to run, so the finding has no figures."""

    relation: str
    template = "{relation} changes values"


class KernelWrite(Described):
    """An undeclared write of a kernel to one of its tensor arguments."""

    kernel: str
    argument: int
    template = "{kernel} writes to its tensor {argument}"


class RelationWrites(Finding, kind="relation-writes"):
    """A call writes to inputs that the float model leaves unchanged: `inputs` of the program by number, and tensor arguments
    of kernels that do not declare the write."""

    relation: str
    kernels: tuple[KernelWrite, ...]
    inputs: tuple[int, ...]

    @property
    def text(self) -> str:
        writes = [write.text for write in self.kernels]
        if self.inputs:
            writes.append(f"changes input {', '.join(map(str, self.inputs))}")
        return f"{self.relation} {', '.join(writes)}"


def _of(output: int) -> str:
    return f" of output {output}" if output else ""
