"""Findings about what a quantizer has annotated."""

from .finding import Finding

INPUT, WEIGHT, OUTPUT, INNER = "input", "weight", "output", "inner"
"""The places of annotations: an input of the model, the weight of the layer, the output of the pattern, and the result of an
operator inside of it."""


PLACES = {
    INPUT: "input {node}",
    WEIGHT: "the weight",
    OUTPUT: "the output",
    INNER: "{node}, inside of the pattern,",
}
"""The places in words, with the name of the node where there may be several."""


class OfAnnotation(Finding):
    """A finding about the annotation of a place, which the text begins with."""

    place: str
    node: str

    @property
    def text(self) -> str:
        return f"{PLACES[self.place].format(node=self.node)} {super().text}"


class NotAnnotated(OfAnnotation, kind="not-annotated"):
    """The claim asks for the quantization of a place, which the quantizer has not annotated."""

    template = "is not annotated"


class AnnotatedOtherwise(OfAnnotation, kind="annotated-otherwise"):
    """An annotation is another one than the QuantizationConfig asks for."""

    got: str
    expected: tuple[str, ...]
    template = "is annotated as {got}, not "

    @property
    def text(self) -> str:
        return super().text + " or ".join(self.expected)


class AnnotatedBeside(OfAnnotation, kind="annotated-beside"):
    """An annotation that nothing asks for: inside of a pattern, or of the output of a dynamic claim."""

    got: str
    template = "is annotated as {got}, which nothing asks for"
