"""Quantizers of PT2E, which declare in code what a BackendConfig declares in data. Imports no quantizer.

A declaration of a quantizer is written down in the terms of a BackendConfig: a pattern of operators and the dtypes of its
activations and weights. The same claims, models and checks then hold for both.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig, ObservationType

PTQ, QAT = ("ptq",), ("qat",)
FLOWS = (*PTQ, *QAT)


WAYS = {"name": "set_module_name({name}, {qconfig})", "type": "set_module_type({type}, {qconfig})"}
"""The methods that configure ExecuTorch's quantizers, as `QuantizerSpec.ways`."""
INDUCTOR_WAYS = {way: call.replace("(", "_qconfig(", 1) for way, call in WAYS.items()}
"""The same of torchao's quantizers for inductor."""


@dataclass(frozen=True, eq=False)
class QuantizerSpec:
    """How a quantizer is made and configured.

    Attributes:
        source: an expression that makes the quantizer.
        names: the module of each name in the expressions.
        default: an expression of the QuantizationConfig that its users begin with, over `per_channel`, `qat` and `dynamic`.
        environment: the environment of tox that has its packages, if one has.
        config: an expression of its QuantizationConfig, over `activation`, `output`, `weight`, `bias` and `qat`; None for a
            quantizer that takes none.
        biases: the expressions of `bias` with one scale for all weights, and with one for each channel.
        half: an expression of the QuantizationConfig that has weights of float16, if the quantizer takes them.
        ways: the method calls that configure one module, over `name`, or those of one class, over `type`, by these words,
            with a QuantizationConfig `qconfig`.
        leaves: the method call that leaves the module `name` in float, if it is not that of `ways` with None as `qconfig`.
    """

    source: str
    names: Mapping[str, str]
    default: str
    environment: str = ""
    config: str | None = "QuantizationConfig({activation}, {output}, {weight}, {bias}, {qat})"
    biases: tuple[str, str] = ("None", "None")
    half: str = ""
    ways: Mapping[str, str] = field(default_factory=dict)
    leaves: str = ""

    @property
    def configured(self) -> str:
        """An expression of the quantizer with a QuantizationConfig `qconfig` for all operators, if it takes one."""
        if self.config is None:
            return self.source
        return f"{self.source}.set_global(qconfig)"

    def configured_by(self, way: str, name: str, module: str) -> str:
        """An expression of the quantizer with a QuantizationConfig `qconfig` for a module of a name and class alone."""
        return f"{self.source}.{self.ways[way].format(name=repr(name), type=module, qconfig='qconfig')}"

    @property
    def leaving(self) -> str:
        """The method call that leaves the module `name` in float; empty if the quantizer has none."""
        return self.leaves or self.ways.get("name", "").format(name="name", qconfig=None)


class Declaration(BackendPatternConfig):
    """What a quantizer declares of one pattern.

    Attributes:
        name: the quantizer's own name for it.
        flows: those for which it is declared.
        per_channel: whether weights have a scale for each output channel; None if the configuration says so.
        floats: operands that stay in float, by the names that models have for them.
        quantizes_all: whether a dynamic pattern quantizes every tensor that it takes, not only the input of its layer.
        behind: whether the pattern is annotated only where quantized operators compute its operands.
        before: source of a module that has to take the result, or the pattern is not annotated.
        channels_last: whether the pattern is annotated only for images in channels-last memory format.
        affine: whether the pattern is declared for affine activations alone, whose zero point is not in the middle.
    """

    def __init__(
        self,
        pattern: Any,
        name: str,
        flows: tuple[str, ...] = FLOWS,
        *,
        per_channel: bool | None = None,
        floats: tuple[str, ...] = (),
        quantizes_all: bool = False,
        behind: bool = False,
        before: str = "",
        channels_last: bool = False,
        affine: bool = False,
    ) -> None:
        super().__init__(pattern)
        self.name, self.flows = name, flows
        self.per_channel, self.floats, self.quantizes_all = per_channel, floats, quantizes_all
        self.behind, self.before, self.channels_last, self.affine = behind, before, channels_last, affine


def declared(
    name: str,
    patterns: Iterable[Any],
    dtype_configs: Iterable[DTypeConfig],
    flows: tuple[str, ...] = FLOWS,
    observation: ObservationType = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT,
    **how: Any,
) -> Iterator[Declaration]:
    """Yield the declaration of each pattern with the same dtypes and observation. `how` are attributes of Declaration."""
    for pattern in patterns:
        one = Declaration(pattern, name, flows, **how)
        one.set_observation_type(observation)
        one.set_dtype_configs([*dtype_configs])
        yield one


class QuantizerConfig(BackendConfig):
    """What a quantizer declares. `engines` are those that run it; by default the converted model is run as it is."""

    def __init__(self, name: str, quantizer: QuantizerSpec, engines: tuple[str, ...] = ("converted",)) -> None:
        super().__init__(name)
        self.quantizer, self.engines = quantizer, engines
