"""Findings about sweeps over all codes: what a kernel makes of certain codes with certain scales and zero points."""

from .finding import Described, Finding


class TensorQparams(Described):
    """Scale and zero point of a tensor by its name."""

    name: str
    scale: float
    zero_point: int
    template = "{name} (scale {scale:.9g}, zero point {zero_point})"


class Code(Described):
    """A code of a tensor."""

    tensor: TensorQparams
    code: int
    template = "{code} of {tensor.text}"


class SweptElement(Described):
    """An element of an output in one turn: its index, the codes that it is computed from, its own code, and the codes that
    exact arithmetic allows, `low` and `high`, which are equal but at a tie.

    `codes` is empty if the operator moves codes. `exact` is the position on the grid."""

    turn: int
    index: tuple[int, ...]
    operands: tuple[TensorQparams, ...]
    codes: tuple[int, ...]
    got: Code
    low: int
    high: int
    exact: float

    @property
    def text(self) -> str:
        expected = str(self.low) if self.low == self.high else f"{self.low} or {self.high}"
        codes = [f"{code} of " for code in self.codes] or [""] * len(self.operands)
        given = ", ".join(code + operand.text for code, operand in zip(codes, self.operands, strict=True))
        return f"{given} gives {self.got.text} at {self.index} in turn {self.turn}, not {expected} (exact {self.exact:.9g})"


class SweptCodes(Finding, kind="swept-codes"):
    """Codes differ from exact arithmetic beyond ties, by up to `worst` steps, in so many of the turns of a sweep; a turn has
    scales and zero points of its own. `elements` are the worst ones."""

    mismatched: int
    total: int
    worst: int
    turns: int
    of_turns: int
    elements: tuple[SweptElement, ...]
    template = (
        "{mismatched} of {total} codes differ from exact arithmetic in {turns} of {of_turns} turns, "
        "by up to {worst} steps: "
    )

    @property
    def text(self) -> str:
        return super().text + " | ".join(element.text for element in self.elements)


class SweptTies(SweptCodes, kind="swept-ties"):
    """All codes that differ are one step off, at most a quarter of a step beside a tie: rounding twice does no more."""

    @property
    def text(self) -> str:
        return f"beside ties, {super().text}"


NEAR_TIE = 0.25
"""The greatest distance from a tie, in steps, of a result that a second rounding moves to the farther code, if the first one
rounds to at most half a step."""


class SweptPlaces(Finding, kind="swept-places"):
    """Equal codes with equal scales and zero points give one code at one place and another code at another place."""

    changed: int
    total: int
    first: SweptElement
    second: SweptElement
    template = (
        "the result depends on the place of {changed} of {total} codes: {first.got.code} at {first.index}, and "
        "{second.text}"
    )


class SweptScale(Finding, kind="swept-scale"):
    """A call with one scale of the output gives other codes after a call with another scale of it, `before`, and the same
    input, than after a call with another input. `element` is the worst one."""

    changed: int
    total: int
    before: TensorQparams
    element: SweptElement
    template = (
        "a call with {before.text} before one with another scale of the output and the same input changes {changed} "
        "of {total} codes: {element.text}"
    )


class SweptOrder(Finding, kind="swept-order"):
    """The result falls from one code to the next where exact arithmetic rises, or the other way round."""

    count: int
    first: SweptElement
    second: SweptElement
    template = "{count} results are in the wrong order: {first.text}; beside {second.text}"


class SweptQparams(Finding, kind="swept-qparams"):
    """The output has another scale or zero point than it was given, or than it shares with its input, in so many of the turns
    of a sweep; the first of them is described."""

    turn: int
    turns: int
    of_turns: int
    operands: tuple[TensorQparams, ...]
    got: TensorQparams
    expected: TensorQparams

    @property
    def text(self) -> str:
        given = ", ".join(operand.text for operand in self.operands)
        return f"{self.got.text}, not {self.expected.text}, for {given} in turn {self.turn}{_of(self)}"


class SweptRaises(Finding, kind="swept-raises"):
    """A call raises in so many of the turns of a sweep; the first of them is described."""

    turn: int
    turns: int
    of_turns: int
    operands: tuple[TensorQparams, ...]
    output: TensorQparams
    exception: str
    message: str

    @property
    def text(self) -> str:
        given = ", ".join(tensor.text for tensor in (*self.operands, self.output))
        return f"execution raises {self.exception} for {given} in turn {self.turn}{_of(self)}: {self.message}"


def _of(finding: SweptQparams | SweptRaises) -> str:
    return f" and {finding.turns - 1} others of {finding.of_turns}" if finding.turns > 1 else f" of {finding.of_turns}"
