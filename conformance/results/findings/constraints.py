"""Findings about constraints: tensors and QConfigs that violate a `DTypeWithConstraints`."""

from .finding import Described, Finding

Number = int | float


class Violation(Described):
    """A field of a `DTypeWithConstraints` that a quantized tensor violates: its scale, zero point or code, and the bound."""

    field: str
    got: Number
    bound: Number

    @property
    def text(self) -> str:
        return TENSOR_SENTENCES[self.field].format(got=self.got, bound=self.bound)


TENSOR_SENTENCES = {
    "scale_min_lower_bound": "scale {got!r} is below {bound!r}",
    "scale_max_upper_bound": "scale {got!r} is above {bound!r}",
    "scale_exact_match": "scale is {got!r}, not {bound!r}",
    "zero_point_exact_match": "zero point is {got:g}, not {bound}",
    "quant_min_lower_bound": "has code {got}, below quant_min {bound}",
    "quant_max_upper_bound": "has code {got}, above quant_max {bound}",
}
"""The sentence about a violating tensor, by field."""


class ObserverViolation(Described):
    """An observer violates a field: its `attribute` (quant_min, quant_max, eps, scale, zero_point) and the field's bound."""

    field: str
    attribute: str
    got: Number
    bound: Number

    @property
    def text(self) -> str:
        attribute = self.attribute.replace("zero_point", "zero point")
        if self.field.endswith("_exact_match"):
            return f"{attribute} is {self.got!r}, not {self.bound!r}"
        return f"{attribute} {self.got!r} is {'below' if 'lower' in self.field else 'above'} {self.bound!r}"


class NoFixedQparams(Described):
    """An observer, by its class name, without fixed qparams where a field wants an exact scale or zero point."""

    observer: str
    template = "{observer} has no fixed qparams"


class ConvertedViolation(Described):
    """A tensor of a converted model (input, output, weight, packed weight) that violates a field.

    `data`, `weights` and `trained` are source text: the data that the activation observers observed, the weights in terms of
    the model's own, `w`, and the weights after the training step that follows the observation. Empty text means: inputs of
    the run, the model's own weights, no training step.
    """

    tensor: str
    violation: Violation
    data: str
    weights: str
    trained: str

    @property
    def text(self) -> str:
        conditions = ""
        if self.data:
            conditions += f" when {self.data} is observed"
            conditions += " and twice that is quantized" if self.violation.field.startswith("quant_") else ""
        if self.weights not in ("", "w"):
            conditions += f" when {self.weights} is the weight"
        if self.trained:
            conditions += f" when training then makes {self.trained} of it"
        return f"{self.tensor} {self.violation.text}{conditions}"


class ConstraintViolated(Finding, kind="constraint-violated"):
    """A tensor of a run violates a field of the dtype config's constraints.

    `what` names the tensor: input, output, weight, engine's output or packed weight.
    """

    what: str
    field: str
    got: Number
    bound: Number

    @property
    def text(self) -> str:
        return f"{self.what} {Violation(self.field, self.got, self.bound).text}"


class ConversionViolates(Finding, kind="conversion-violates"):
    """With a QConfig that satisfies every constraint, a tensor of the converted model violates one."""

    violation: ConvertedViolation
    qconfig: str
    template = "{violation.text}: {qconfig}"


class ViolatingQConfigUsed(Finding, kind="violating-qconfig-used"):
    """prepare uses a QConfig that violates constraints; `consequence` is a violation in the converted model, if any."""

    broken: tuple[ObserverViolation | NoFixedQparams, ...]
    warned: bool
    qconfig: str
    consequence: ConvertedViolation | None

    @property
    def text(self) -> str:
        warning = "" if self.warned else " without a warning"
        return f"{_texts(self.broken)}, and it is used{warning}: {self.qconfig}{_consequence(self.consequence)}"


class ViolatingQConfigIgnored(Finding, kind="violating-qconfig-ignored"):
    """prepare ignores a QConfig that violates constraints, without a warning."""

    broken: tuple[ObserverViolation | NoFixedQparams, ...]
    qconfig: str

    @property
    def text(self) -> str:
        return f"{_texts(self.broken)}, and it is ignored without a warning: {self.qconfig}"


class SatisfyingQConfigIgnored(Finding, kind="satisfying-qconfig-ignored"):
    """prepare ignores a QConfig that satisfies every constraint."""

    qconfig: str
    template = "satisfies every constraint and is ignored: {qconfig}"


class SatisfyingQConfigWarned(Finding, kind="satisfying-qconfig-warned"):
    """prepare uses a QConfig that satisfies every constraint, and warns that it ignores it."""

    qconfig: str
    consequence: ConvertedViolation | None

    @property
    def text(self) -> str:
        said = "satisfies every constraint and is used, with a warning that it is ignored"
        return f"{said}: {self.qconfig}{_consequence(self.consequence)}"


class IgnoredQConfigTrainsWeight(Finding, kind="ignored-qconfig-trains-weight"):
    """prepare_qat ignores a QConfig and still swaps in a QAT module that fake-quantizes its weight."""

    separator = " | "
    qconfig: str
    template = "it is ignored, and its weight is fake-quantized in training all the same: {qconfig}"


def _texts(violations: tuple[ObserverViolation | NoFixedQparams, ...]) -> str:
    return ", ".join(violation.text for violation in violations)


def _consequence(violation: ConvertedViolation | None) -> str:
    return "" if violation is None else f"; then {violation.text}"
