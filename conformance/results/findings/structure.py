"""Findings about the structure of observed, reference and lowered models."""

from dataclasses import dataclass

from .finding import Finding


@dataclass(frozen=True)
class NoEffect(Finding, kind="no-effect"):
    """Taking the claim out of the config changes neither the observed nor the lowered model."""

    @property
    def text(self) -> str:
        return "without this claim in the config the observed and the lowered model are the same"


@dataclass(frozen=True)
class NotObserved(Finding, kind="not-observed"):
    """The dtype config asks for an observer of an input, by its node's name, or of the output (None), and there is none."""

    node: str | None

    @property
    def text(self) -> str:
        return "the output is not observed" if self.node is None else f"input {self.node} is not observed"


@dataclass(frozen=True)
class ObservedDtype(Finding, kind="observed-dtype"):
    """The observer of an input, by its node's name, or of the output (None) has not the dtype of the dtype config."""

    node: str | None
    got: str
    expected: str

    @property
    def text(self) -> str:
        place = "the output" if self.node is None else f"input {self.node}"
        return f"{place} is observed as {self.got}, not {self.expected}"


@dataclass(frozen=True)
class ObserverNotDynamic(Finding, kind="observer-not-dynamic"):
    """The observer of an input of a dynamic claim is not dynamic."""

    node: str

    @property
    def text(self) -> str:
        return f"the observer of input {self.node} is not dynamic"


@dataclass(frozen=True)
class DynamicOutputObserved(Finding, kind="dynamic-output-observed"):
    """The output of a dynamic claim is observed."""

    @property
    def text(self) -> str:
        return "the output of a dynamic claim is observed"


@dataclass(frozen=True)
class SharedObserver(Finding, kind="shared-observer"):
    """Input and output share an observer, or do not, against the observation type."""

    shared: bool
    observation_type: str

    @property
    def text(self) -> str:
        return f"input and output {'share' if self.shared else 'do not share'} an observer, against {self.observation_type}"


@dataclass(frozen=True)
class InnerObservers(Finding, kind="inner-observers"):
    """Observers between the operators of a fused pattern."""

    count: int

    @property
    def text(self) -> str:
        return f"{self.count} observers inside of the pattern"


@dataclass(frozen=True)
class ObserverRange(Finding, kind="observer-range"):
    """quant_min and quant_max of an observer are not among the pairs of the recipe (`expected`)."""

    observer: str
    quant_min: int
    quant_max: int
    expected: tuple[tuple[int, int], ...]

    @property
    def text(self) -> str:
        expected = " or ".join(f"{low} to {high}" for low, high in self.expected)
        return f"{self.observer} observes the codes {self.quant_min} to {self.quant_max}, not {expected}"


@dataclass(frozen=True)
class FakeQuantizeDisabled(Finding, kind="fake-quantize-disabled"):
    """A fake-quantize with its quantization or its observer (`observer_disabled`) switched off."""

    module: str
    observer_disabled: bool

    @property
    def text(self) -> str:
        return f"{self.module} does not {'observe' if self.observer_disabled else 'fake-quantize'}"


@dataclass(frozen=True)
class ActivationObserved(Finding, kind="activation-observed"):
    """An activation of a weight-only claim is observed with a quantized dtype."""

    node: str
    dtype: str

    @property
    def text(self) -> str:
        return f"{self.node} observes an activation as {self.dtype}; only weights are quantized"


@dataclass(frozen=True)
class MissingModule(Finding, kind="missing-module"):
    """No module of the class that the config declares in the observed model (`model` is the flow) or the reference model."""

    module: str
    model: str

    @property
    def text(self) -> str:
        if self.model == "reference":
            return f"no {self.module} in the reference model"
        return f"no {self.module} in the {self.model} model, which the config declares"


@dataclass(frozen=True)
class WeightDtype(Finding, kind="weight-dtype"):
    """The dtype of a weight in the reference model differs from the dtype config's."""

    got: str
    expected: str

    @property
    def text(self) -> str:
        return f"weight quantized to {self.got}, not {self.expected}"


@dataclass(frozen=True)
class UndeclaredDtype(Finding, kind="undeclared-dtype"):
    """A node of the reference model quantizes to a dtype that the dtype config does not have."""

    node: str
    dtype: str

    @property
    def text(self) -> str:
        return f"{self.node} quantizes to {self.dtype}"


@dataclass(frozen=True)
class QuantizesNothing(Finding, kind="quantizes-nothing"):
    """The reference model has no quantize operator."""

    @property
    def text(self) -> str:
        return "the reference model quantizes nothing"


@dataclass(frozen=True)
class MissingQparams(Finding, kind="missing-qparams"):
    """No quantize operator of the reference model uses the oracle's qparams of `name`; at most four of them are kept."""

    name: str
    scales: tuple[float, ...]
    zero_points: tuple[float, ...]

    @property
    def text(self) -> str:
        scale, zero_point = (", ".join(map(repr, values)) for values in (self.scales, self.zero_points))
        return (
            f"the reference model quantizes nothing with the scale {scale} and zero point {zero_point} of {self.name}"
        )


@dataclass(frozen=True)
class RanInFloat(Finding, kind="ran-in-float"):
    """Kernels that ran on float tensors."""

    kernels: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"ran in float: {', '.join(self.kernels)}"


@dataclass(frozen=True)
class QuantizedUnasked(Finding, kind="quantized-unasked"):
    """An operator for which the mapping has no qconfig is computed by quantized kernels."""

    kernels: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"the mapping has no qconfig for it, and {', '.join(self.kernels)} computes it all the same"


@dataclass(frozen=True)
class NoQuantizedKernel(Finding, kind="no-quantized-kernel"):
    """No quantized kernel ran."""

    @property
    def text(self) -> str:
        return "no quantized kernel ran"


@dataclass(frozen=True)
class LeftQuantized(Finding, kind="left-quantized"):
    """Outputs, by number, that are quantized where the float model's are float."""

    outputs: tuple[int, ...]

    @property
    def text(self) -> str:
        return f"output {', '.join(map(str, self.outputs))} is left quantized, the float model gives float"


@dataclass(frozen=True)
class ConvertsInside(Finding, kind="converts-inside"):
    """Conversions to or from float inside of quantized kernels, each as `outer > inner`."""

    conversions: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"converts to float inside of the kernel: {', '.join(self.conversions)}"
