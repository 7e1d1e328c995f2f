"""Findings about the structure of observed, reference and lowered models."""

from .finding import Finding


class NoEffect(Finding, kind="no-effect"):
    """Taking the claim out of the config changes neither the observed nor the lowered model."""

    template = "without this claim in the config the observed and the lowered model are the same"


class NotObserved(Finding, kind="not-observed"):
    """The dtype config asks for an observer of an input, by its node's name, or of the output (None), and there is none."""

    node: str | None

    @property
    def text(self) -> str:
        return "the output is not observed" if self.node is None else f"input {self.node} is not observed"


class ObservedDtype(Finding, kind="observed-dtype"):
    """The observer of an input, by its node's name, or of the output (None) has not the dtype of the dtype config."""

    node: str | None
    got: str
    expected: str

    @property
    def text(self) -> str:
        place = "the output" if self.node is None else f"input {self.node}"
        return f"{place} is observed as {self.got}, not {self.expected}"


class ObserverNotDynamic(Finding, kind="observer-not-dynamic"):
    """The observer of an input of a dynamic claim is not dynamic."""

    node: str
    template = "the observer of input {node} is not dynamic"


class DynamicOutputObserved(Finding, kind="dynamic-output-observed"):
    """The output of a dynamic claim is observed."""

    template = "the output of a dynamic claim is observed"


class SharedObserver(Finding, kind="shared-observer"):
    """Input and output share an observer, or do not, against the observation type."""

    shared: bool
    observation_type: str

    @property
    def text(self) -> str:
        return f"input and output {'share' if self.shared else 'do not share'} an observer, against {self.observation_type}"


class InnerObservers(Finding, kind="inner-observers"):
    """Observers between the operators of a fused pattern."""

    count: int
    template = "{count} observers inside of the pattern"


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


class FakeQuantizeDisabled(Finding, kind="fake-quantize-disabled"):
    """A fake-quantize with its quantization or its observer (`observer_disabled`) switched off."""

    module: str
    observer_disabled: bool

    @property
    def text(self) -> str:
        return f"{self.module} does not {'observe' if self.observer_disabled else 'fake-quantize'}"


class ActivationObserved(Finding, kind="activation-observed"):
    """An activation of a weight-only claim is observed with a quantized dtype."""

    node: str
    dtype: str
    template = "{node} observes an activation as {dtype}; only weights are quantized"


class MissingModule(Finding, kind="missing-module"):
    """No module of the class that the config declares in the observed model (`model` is the flow) or the reference model."""

    module: str
    model: str

    @property
    def text(self) -> str:
        if self.model == "reference":
            return f"no {self.module} in the reference model"
        return f"no {self.module} in the {self.model} model, which the config declares"


class WeightDtype(Finding, kind="weight-dtype"):
    """The dtype of a weight in the reference model differs from the dtype config's."""

    got: str
    expected: str
    template = "weight quantized to {got}, not {expected}"


class UndeclaredDtype(Finding, kind="undeclared-dtype"):
    """A node of the reference model quantizes to a dtype that the dtype config does not have."""

    node: str
    dtype: str
    template = "{node} quantizes to {dtype}"


class QuantizesNothing(Finding, kind="quantizes-nothing"):
    """The reference model has no quantize operator."""

    template = "the reference model quantizes nothing"


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


class RanInFloat(Finding, kind="ran-in-float"):
    """Kernels that ran on float tensors."""

    kernels: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"ran in float: {', '.join(self.kernels)}"


class QuantizedUnasked(Finding, kind="quantized-unasked"):
    """An operator for which the mapping has no qconfig is computed by quantized kernels."""

    kernels: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"the mapping has no qconfig for it, and {', '.join(self.kernels)} computes it all the same"


class NoQuantizedKernel(Finding, kind="no-quantized-kernel"):
    """No quantized kernel ran."""

    template = "no quantized kernel ran"


class LeftQuantized(Finding, kind="left-quantized"):
    """Outputs, by number, that are quantized where the float model's are float."""

    outputs: tuple[int, ...]

    @property
    def text(self) -> str:
        return f"output {', '.join(map(str, self.outputs))} is left quantized, the float model gives float"


class ConvertsInside(Finding, kind="converts-inside"):
    """Conversions to or from float inside of quantized kernels, each as `outer > inner`."""

    conversions: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"converts to float inside of the kernel: {', '.join(self.conversions)}"
