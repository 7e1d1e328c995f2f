"""Findings about outputs: their number, shapes, grids, codes and values, and their accuracy."""

from .finding import Described, Finding


class Element(Described):
    """An element that differs: its index, what the model gave, what the golden has and, if known, the exact position on the
    grid (both codes and positions in steps)."""

    index: tuple[int, ...]
    got: float
    golden: float
    exact: float | None = None

    @property
    def text(self) -> str:
        columns = {"got": self.got, "golden": self.golden, **({} if self.exact is None else {"exact": self.exact})}
        return f"{self.index} " + " ".join(f"{name} {value:.9g}" for name, value in columns.items())


class OutputCount(Finding, kind="output-count"):
    """The number of a model's outputs differs from the golden's."""

    got: int
    expected: int

    @property
    def text(self) -> str:
        return f"{_whose(self)}{self.got} outputs, golden {self.expected}"


class OfOutput(Finding):
    """A finding about an output, by its number, which the text begins with."""

    output: int

    @property
    def text(self) -> str:
        return _whose(self, self.output) + super().text


class OutputShape(OfOutput, kind="output-shape"):
    """The shape of an output differs from the golden's."""

    got: tuple[int, ...]
    expected: tuple[int, ...]
    template = "shape {got}, golden {expected}"


class OutputKind(OfOutput, kind="output-kind"):
    """An output is quantized where the golden is float, or float where the golden is quantized."""

    quantized: bool

    @property
    def text(self) -> str:
        return f"{_whose(self, self.output)}gives {'codes' if self.quantized else 'float values'}, the golden has the other"


class OutputScheme(OfOutput, kind="output-scheme"):
    """An output is not quantized per tensor; `got` is its qscheme."""

    got: str
    template = "{got}, golden per_tensor_affine"


class OutputQparams(OfOutput, kind="output-qparams"):
    """The scale, zero point or dtype of an output differs from the golden's."""

    scale: float
    zero_point: int
    dtype: str
    expected_scale: float
    expected_zero_point: int
    expected_dtype: str
    template = (
        "scale {scale!r}, zero point {zero_point}, {dtype}, "
        "golden {expected_scale!r}, {expected_zero_point}, {expected_dtype}"
    )


class CodesDiffer(OfOutput, kind="codes-differ"):
    """Codes of an output differ from the golden's beyond ties and tolerance, by up to `worst` steps; `elements` are the worst
    ones."""

    mismatched: int
    total: int
    worst: int
    elements: tuple[Element, ...]

    @property
    def text(self) -> str:
        percent = 100 * self.mismatched / self.total
        return (
            f"{_whose(self, self.output)}{self.mismatched} of {self.total} codes differ ({percent:.1f}%), by up to "
            f"{self.worst} steps: {' | '.join(element.text for element in self.elements)}"
        )


class ValuesDiffer(OfOutput, kind="values-differ"):
    """Values of a float output differ from the golden's, by up to `worst`; `elements` are the worst ones."""

    mismatched: int
    total: int
    worst: float
    elements: tuple[Element, ...]
    template = "{mismatched} of {total} values differ, by up to {worst:.6g}: "

    @property
    def text(self) -> str:
        return super().text + " | ".join(element.text for element in self.elements)


class InSevenBits(ValuesDiffer, kind="values-in-seven-bits"):
    """Values of a float output differ from the golden's and are those of activations that are quantized to 7 bits, as far as
    exact arithmetic is certain of those."""

    @property
    def text(self) -> str:
        return f"{super().text}; they are those of activations of 7 bits"


class QuantizedByPart(ValuesDiffer, kind="values-by-part"):
    """Values of a float output differ from the golden's and are those of an activation of which each `part`, a row, item or
    pixel, is quantized with qparams of its own, as far as exact arithmetic is certain of those."""

    part: str

    @property
    def text(self) -> str:
        return f"{super().text}; they are those of an activation that is quantized by {self.part}"


class CodesVary(OfOutput, kind="codes-vary"):
    """Codes of the engine's output differ from the golden's and from run to run; no count or element is kept."""

    template = "the codes differ from run to run"


class FloatShape(Finding, kind="float-shape"):
    """The shape of an output differs from the float model's."""

    got: tuple[int, ...]
    expected: tuple[int, ...]
    template = "shape {got}, the float model gives {expected}"


class NotFinite(Finding, kind="not-finite"):
    """The output holds infinities or NaN."""

    template = "the output is not finite"


class NoiseWithoutSignal(Finding, kind="noise-without-signal"):
    """The output is not zero where the float model's is zero everywhere."""

    template = "noise where zero is due"


class LowSqnr(Finding, kind="low-sqnr"):
    """The SQNR against the float model is below the floor, in dB; `sqnr` is None where it differs from run to run."""

    sqnr: float | None
    floor: float

    @property
    def text(self) -> str:
        sqnr = "SQNR" if self.sqnr is None else f"SQNR {self.sqnr:.1f} dB"
        return f"{sqnr} is below {self.floor:.0f} dB"


def _whose(finding: Finding, output: int = 0) -> str:
    """The beginning of a finding's text: the model, unless it is the engine's, and the output, unless it is the first."""
    model = "the reference model's " if finding.check == "reference" else ""
    return f"{model}output {output}: " if output else model
