"""From a dtype config to observers and a QConfigMapping that satisfy it, as source text and as objects."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver
from torch.ao.quantization.backend_config import DTypeConfig, DTypeWithConstraints

RANGES: dict[torch.dtype, tuple[int, int]] = {
    torch.quint8: (0, 255),
    torch.qint8: (-128, 127),
    torch.quint4x2: (0, 15),
    torch.qint32: (-(2**31), 2**31 - 1),
}
QUANTIZED = frozenset(RANGES)
REDUCED_RANGE_ENGINES = frozenset({"fbgemm", "x86"})
"""Their 8-bit kernels add pairs of products in int16 on CPUs without VNNI, so torch's own qconfigs give activations
7 bits there (`torch.ao.quantization.get_default_qconfig`)."""


def rounded_up(observer: Any, scale: Tensor, zero_point: Tensor) -> tuple[Tensor, Tensor]:
    """Round scales up to powers of two and fit affine zero points to them."""
    mantissa, exponent = torch.frexp(scale)
    exact = torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 0.5).int())
    if observer.min_val.numel() == 0 or not torch.isfinite(observer.min_val).all():
        return scale, zero_point  # nothing was observed
    low = torch.clamp(observer.min_val, max=0.0)
    if observer.qscheme == torch.per_channel_affine_float_qparams:
        return exact, -observer.min_val / exact
    if observer.qscheme in (torch.per_tensor_affine, torch.per_channel_affine):
        fitted = observer.quant_min - torch.round(low / exact).to(zero_point.dtype)
        zero_point = torch.clamp(fitted, observer.quant_min, observer.quant_max).reshape(zero_point.shape)
    return exact, zero_point


class PowerOfTwoObserver(MinMaxObserver):
    """A min-max observer whose scale is rounded up to a power of two."""

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return rounded_up(self, *super().calculate_qparams())


class PowerOfTwoPerChannelObserver(PerChannelMinMaxObserver):
    """A per-channel min-max observer whose scales are rounded up to powers of two."""

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return rounded_up(self, *super().calculate_qparams())


def dtype_name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_config_name(dtypes: DTypeConfig) -> str:
    """Name a dtype config by its kind and deciding dtype: `static-quint8`, `dynamic-float16`, `weight-quint4x2`."""
    if dtypes.is_dynamic:
        return f"dynamic-{dtype_name(dtypes.input_dtype)}"
    if dtypes.weight_dtype in QUANTIZED and dtypes.input_dtype not in QUANTIZED:
        return f"weight-{dtype_name(dtypes.weight_dtype)}"
    return f"static-{dtype_name(dtypes.input_dtype)}"


@dataclass(frozen=True)
class Recipe:
    """How one case is quantized; `steps` and `weight_levels` tell the probes how many codes there are.

    `qconfig` is source text of the QConfig of the pattern, `mapping` of the mapping, both over the names of torch.ao.
    """

    kind: str
    qconfig: str
    mapping: str
    steps: int
    weight_levels: int


def _range(constrained: DTypeWithConstraints, *, reduced: bool) -> tuple[int, int]:
    assert constrained.dtype is not None
    low, high = RANGES[constrained.dtype]
    if reduced and constrained.dtype == torch.quint8:
        low, high = 0, 127
    lowest, highest = constrained.quant_min_lower_bound, constrained.quant_max_upper_bound
    return (low if lowest is None else max(low, int(lowest))), (high if highest is None else min(high, int(highest)))


def _observer(
    constrained: DTypeWithConstraints, qscheme: str, *, qat: bool, reduced: bool = False, axis: int | None = None
) -> str:
    """Source of an observer (or, for QAT, a fake-quantize) within the constraints."""
    low, high = _range(constrained, reduced=reduced)
    floor = constrained.scale_min_lower_bound
    eps = "" if floor is None else f", eps={floor!r}"
    fields = f"dtype={constrained.dtype}, qscheme=torch.{qscheme}, quant_min={low}, quant_max={high}{eps}"
    name = "PowerOfTwoObserver"
    if axis is not None:
        name, fields = "PowerOfTwoPerChannelObserver", f"{fields}, ch_axis={axis}"
    return f"FakeQuantize.with_args(observer={name}, {fields})" if qat else f"{name}.with_args({fields})"


def _activation(dtypes: DTypeConfig, *, qat: bool, reduced: bool) -> str:
    constrained = dtypes.input_dtype_with_constraints
    dtype = constrained.dtype
    if dtype not in QUANTIZED:
        dynamic = ", is_dynamic=True" if dtypes.is_dynamic else ""
        return f"PlaceholderObserver.with_args(dtype={dtype or torch.float}{dynamic})"
    low, high = _range(constrained, reduced=False)
    if dtypes.is_dynamic:
        fields = f"dtype={dtype}, quant_min={low}, quant_max={high}, is_dynamic=True"
        if constrained.scale_min_lower_bound is not None:
            fields += f", eps={constrained.scale_min_lower_bound!r}"
        if qat:
            return f"FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, averaging_constant=1, {fields})"
        return f"PlaceholderObserver.with_args({fields})"
    if constrained.scale_exact_match is not None:
        fields = f"scale={constrained.scale_exact_match!r}, zero_point={constrained.zero_point_exact_match!r}"
        fields += f", dtype={dtype}, quant_min={low}, quant_max={high}"
        if qat:
            return f"FixedQParamsFakeQuantize.with_args(observer=FixedQParamsObserver.with_args({fields}))"
        return f"FixedQParamsObserver.with_args({fields})"
    return _observer(constrained, "per_tensor_affine", qat=qat, reduced=reduced)


def _weight(dtypes: DTypeConfig, *, qat: bool, per_channel: bool) -> str:
    constrained = dtypes.weight_dtype_with_constraints
    if constrained.dtype is None:
        # a qconfig always has a weight observer, and some operators without a declared weight, PReLU for one, ask it
        constrained = DTypeWithConstraints(torch.qint8)
    if constrained.dtype not in QUANTIZED:
        return f"PlaceholderObserver.with_args(dtype={constrained.dtype})"
    if dtype_config_name(dtypes).startswith("weight-"):
        return _observer(constrained, "per_channel_affine_float_qparams", qat=qat, axis=0)
    if per_channel:
        return _observer(constrained, "per_channel_symmetric", qat=qat, axis=0)
    return _observer(constrained, "per_tensor_symmetric", qat=qat)


def recipe(dtypes: DTypeConfig, *, engine: str, qat: bool, per_channel: bool, target: str = "") -> Recipe:
    """Return the `exact` recipe for a dtype config on an engine.

    `target` is the source of the object whose type gets the pattern's qconfig where the model holds another operator that
    must not have it; empty if the qconfig is global.
    """
    kind = dtype_config_name(dtypes).split("-")[0]
    reduced = engine in REDUCED_RANGE_ENGINES
    constrained = dtypes.input_dtype_with_constraints
    steps = 255
    if constrained.dtype in QUANTIZED:
        low, high = _range(constrained, reduced=reduced and constrained.scale_exact_match is None)
        steps = high - low
    levels = 127
    weight = _weight(dtypes, qat=qat, per_channel=per_channel)
    qconfig = f"QConfig(activation={_activation(dtypes, qat=qat, reduced=reduced)}, weight={weight})"
    mapping = "QConfigMapping().set_global(qconfig)"
    if target:
        free = replace(constrained, scale_exact_match=None, zero_point_exact_match=None)
        general = _observer(free, "per_tensor_affine", qat=qat, reduced=reduced)
        others = f"QConfig(activation={general}, weight={weight})"
        mapping = f"QConfigMapping().set_global({others}).set_object_type({target}, qconfig)"
    return Recipe(kind, qconfig, mapping, steps, levels)
