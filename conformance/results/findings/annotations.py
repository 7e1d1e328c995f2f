"""Findings about what a quantizer has annotated."""

from dataclasses import dataclass

from .finding import Finding

INPUT, WEIGHT, OUTPUT, INNER = "input", "weight", "output", "inner"
"""The places of annotations: an input of the model, the weight of the layer, the output of the pattern, and the result of an
operator inside of it."""


def _place(place: str, node: str) -> str:
    """A place in words, with the name of its node where there may be several."""
    return {
        INPUT: f"input {node}",
        WEIGHT: "the weight",
        OUTPUT: "the output",
        INNER: f"{node}, inside of the pattern,",
    }[place]


@dataclass(frozen=True)
class NotAnnotated(Finding, kind="not-annotated"):
    """The claim asks for the quantization of a place, which the quantizer has not annotated."""

    place: str
    node: str

    @property
    def text(self) -> str:
        return f"{_place(self.place, self.node)} is not annotated"


@dataclass(frozen=True)
class AnnotatedOtherwise(Finding, kind="annotated-otherwise"):
    """An annotation is another one than the QuantizationConfig asks for."""

    place: str
    node: str
    got: str
    expected: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"{_place(self.place, self.node)} is annotated as {self.got}, not {' or '.join(self.expected)}"


@dataclass(frozen=True)
class AnnotatedBeside(Finding, kind="annotated-beside"):
    """An annotation that nothing asks for: inside of a pattern, or of the output of a dynamic claim."""

    place: str
    node: str
    got: str

    @property
    def text(self) -> str:
        return f"{_place(self.place, self.node)} is annotated as {self.got}, which nothing asks for"
