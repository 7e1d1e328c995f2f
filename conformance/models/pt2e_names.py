"""The names of recipes for quantizers, and observers of torchao with power-of-two scales. Imports torchao."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from torch import Tensor
from torchao.quantization import pt2e
from torchao.quantization.pt2e import FakeQuantize, MinMaxObserver, PerChannelMinMaxObserver, quantizer

from conformance.cases.recipes import rounded_up
from conformance.configs.quantizer import QuantizerSpec


class PowerOfTwoObserver(MinMaxObserver):  # type: ignore[misc]
    """A min-max observer whose scale is rounded up to a power of two."""

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return rounded_up(self, *super().calculate_qparams())


class PowerOfTwoPerChannelObserver(PerChannelMinMaxObserver):  # type: ignore[misc]
    """A per-channel min-max observer whose scales are rounded up to powers of two."""

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return rounded_up(self, *super().calculate_qparams())


class PerChannelFakeQuantize(FakeQuantize):  # type: ignore[misc]
    """A fake-quantize that gets the axis of its channels: torchao passes it to classes with `PerChannel` in their name."""


class Observed:
    """A quantizer that takes no configuration, with other observers: one for tensors with one scale, one for channels."""

    def __init__(self, quantizer: Any, per_tensor: Any, per_channel: Any) -> None:
        self.quantizer, self.per_tensor, self.per_channel = quantizer, per_tensor, per_channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self.quantizer, name)

    def annotate(self, model: Any) -> Any:
        annotated = self.quantizer.annotate(model)
        for node in annotated.graph.nodes:
            if (own := node.meta.get("quantization_annotation")) is not None:
                own.input_qspec_map = {source: self.observed(spec) for source, spec in own.input_qspec_map.items()}
                own.output_qspec = self.observed(own.output_qspec)
        return annotated

    def observed(self, spec: Any) -> Any:
        if type(spec).__name__ != "QuantizationSpec":  # shared, derived or fixed
            return spec
        observer = self.per_channel if "per_channel" in str(spec.qscheme) else self.per_tensor
        return replace(spec, observer_or_fake_quant_ctr=observer)


OWN = (PowerOfTwoObserver, PowerOfTwoPerChannelObserver, PerChannelFakeQuantize, Observed)


@cache
def names(spec: QuantizerSpec, observers: Sequence[str], specifications: Sequence[str]) -> dict[str, Any]:
    """Return the names in the recipes for a quantizer: of `torchao.quantization.pt2e`, of its quantizers, and of the
    quantizer's own modules. Raises ImportError for one that is not installed."""
    return {
        **{name: getattr(pt2e, name) for name in observers},
        **{name: getattr(quantizer, name) for name in specifications},
        **{one.__name__: one for one in OWN},
        **{name: getattr(import_module(module), name) for name, module in spec.names.items()},
    }
