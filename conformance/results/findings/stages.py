"""Findings about stages that raise, and about processes that die."""

from .finding import Finding

WORDS = {
    "float": "the pattern cannot occur: the float model",
    "calibrate": "the observed model",
    "reference": "convert_to_reference",
    "reference execution": "the reference model",
}
"""Subjects of sentences about stages, where the subject is not the name of the stage."""


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


class FurtherInputs(Finding, kind="further-inputs"):
    """The finding before this one, of the same check, is about inputs of other shapes than the run is calibrated with;
    `operands` are the names and shapes of all of them."""

    separator = ", "
    operands: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def text(self) -> str:
        return f"where {' and '.join(f'{name} is of shape {shape}' for name, shape in self.operands)}"


class FurtherRange(Finding, kind="further-range"):
    """The inputs of the finding before this one have a range of their own, which the model is calibrated with: the number of
    codes below zero, and the binary exponent of a step."""

    separator = ", "
    below: int
    exponent: int
    template = "in steps of 2**{exponent} with {below} codes below zero"


class FurtherThreads(Finding, kind="further-threads"):
    """The finding before this one is about an execution on this number of threads."""

    separator = ", "
    threads: int
    template = "on {threads} threads"


DEGENERATE = {
    "zero": "all elements are zero",
    "lowest": "all elements are the lowest code",
    "highest": "all elements are the highest code",
    "within_code": "all elements round to one code",
    "one_differs": "all elements but one are equal",
}
"""Activations without variety, by the name that operands have for them. A network has some of them behind a blank image, a
dead ReLU, or padding."""

VIEWS = {
    "expanded": "operands are expanded views, with a stride of 0",
    "overlapping": "operands are views whose rows overlap in memory",
    "permuted": "operands are views of which the first dimension varies fastest in memory",
}
"""Activations in memory that no memory format describes."""

BEYOND = {
    "below": "all elements are below the calibrated range",
    "above": "all elements are above the calibrated range",
}
"""Activations that no calibration saw."""

INDICES = {
    "first": "all indices are the first",
    "last": "all indices are the last",
    "int32": "indices and offsets are int32",
}
"""Indices without variety, and of the integer dtype that they do not have by default."""


class OfData(Finding):
    """The finding before this one is about inputs that DEGENERATE, VIEWS, BEYOND or INDICES names."""

    separator = ", "
    data: str

    @property
    def text(self) -> str:
        return f"where {(DEGENERATE | VIEWS | BEYOND | INDICES)[self.data]}"


class FurtherData(OfData, kind="further-data"):
    """The finding before this one is about inputs that DEGENERATE, VIEWS or INDICES names."""


class FurtherBeyond(OfData, kind="further-beyond"):
    """The finding before this one is about inputs beyond the calibrated range, as BEYOND names them."""


FURTHER = frozenset({FurtherInputs.kind, FurtherData.kind, FurtherBeyond.kind})
"""The kinds of findings about other inputs than the run's own."""


class Lies(Finding, kind="lies"):
    """The elements of the finding before this one all lie in one part of the output."""

    separator = ", "
    where: str
    template = "all {where}"


INPUTS = (FurtherInputs, FurtherRange, FurtherThreads, FurtherData, FurtherBeyond, Lies)
"""The kinds of findings that say how a model is executed of which the finding before them speaks, or where it is wrong."""


UNDEFINED = {
    "out-of-bounds": "a kernel accesses memory outside of its operands and result",
    "uninitialized": "a kernel reads memory that nothing has written",
    "race": "threads write the same memory in any order",
}
"""What makes the outcome of a run undefined, by the name that the ledger has for it."""


class Undefined(Finding, kind="undefined"):
    """What the run does is undefined, for a reason that UNDEFINED names: it may crash, raise, be wrong or conform."""

    reason: str

    @property
    def text(self) -> str:
        return UNDEFINED[self.reason]


class Crashes(Finding, kind="crashes"):
    """The process of the run ends by a signal, exits, or hangs."""

    reason: str
    template = "{reason}"
