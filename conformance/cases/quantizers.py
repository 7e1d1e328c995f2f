"""Recipes for quantizers of PT2E: the QuantizationConfig of a scheme, as source text over the names of torchao."""

from dataclasses import replace

import torch
from torch.ao.quantization.backend_config import DTypeConfig

from conformance.configs.quantizer import Declaration, QuantizerSpec
from conformance.oracle.scheme import Grid, Scheme

from .claims import Claim
from .operators import Variant
from .recipes import QSCHEMES, QUANTIZED, RANGE_OBSERVERS, Recipe, dtype_name
from .variants import transposed

QUANTIZED_OF = {torch.int8: torch.qint8, torch.uint8: torch.quint8, torch.int32: torch.qint32}
"""The quantized dtype of each integer dtype: PT2E knows no quantized dtypes."""
INTEGERS = {dtype_name(quantized): dtype_name(integer) for integer, quantized in QUANTIZED_OF.items()}
"""Names of integer dtypes by those of quantized ones."""


def quantizer_recipe(quantizer: QuantizerSpec, exact: Recipe, dtypes: DTypeConfig, mapping: str) -> Recipe:
    """Return the recipe for a quantizer that has the scheme of an `exact` one. `mapping` is that of the profile.

    Its `qconfig` is a QuantizationConfig, its `mapping` the quantizer.
    """
    scheme = exact.scheme
    whole = quantizer.configured
    if quantizer.config is None:
        return replace(exact, qconfig="None", mapping=_observed(whole, mapping))
    if scheme.half:
        return replace(exact, qconfig=quantizer.half, mapping=whole)
    if mapping == "default":
        per_channel = scheme.weight is not None and scheme.weight.axis is not None
        qconfig = quantizer.default.format(per_channel=per_channel, qat=scheme.qat, dynamic=bool(dtypes.is_dynamic))
        return replace(exact, qconfig=qconfig, mapping=whole)
    weight = "None" if scheme.weight is None else _spec(scheme.weight, qat=scheme.qat)
    assert scheme.activation is not None
    if dtypes.is_dynamic:
        activation, output = _dynamic(scheme.activation, qat=scheme.qat), "None"
    else:
        activation = output = _spec(scheme.activation, qat=scheme.qat)
    bias = "None"
    if scheme.weight is not None:
        bias = quantizer.biases[scheme.weight.axis is not None]
    qconfig = quantizer.config.format(activation=activation, output=output, weight=weight, bias=bias, qat=scheme.qat)
    if mapping == "ranges":
        for name, torchs in RANGE_OBSERVERS.items():
            qconfig = qconfig.replace(name, torchs)
    return replace(exact, qconfig=qconfig, mapping=whole)


def _observed(quantizer: str, mapping: str) -> str:
    """Source of a quantizer that takes no configuration, whose observers are those of a mapping."""
    if mapping == "default":
        return quantizer
    names = RANGE_OBSERVERS.values() if mapping == "ranges" else RANGE_OBSERVERS
    return f"Observed({quantizer}, {', '.join(names)})"


def _spec(grid: Grid, *, qat: bool) -> str:
    """Source of the QuantizationSpec of a grid that is observed."""
    observer = "PowerOfTwoObserver" if grid.axis is None else "PowerOfTwoPerChannelObserver"
    options = [] if grid.floor is None else [f"eps={grid.floor!r}"]
    if qat:
        options.insert(0, f"observer={observer}")
        observer = "FakeQuantize" if grid.axis is None else "PerChannelFakeQuantize"
    qscheme = f"torch.per_{'tensor' if grid.axis is None else 'channel'}_{QSCHEMES[grid.zero_point]}"
    return _source(grid, f"{observer}.with_args({', '.join(options)})", qscheme)


def _dynamic(grid: Grid, *, qat: bool) -> str:
    """Source of the QuantizationSpec of a grid that each call computes anew."""
    options = [] if grid.floor is None else [f"eps={grid.floor!r}"]
    observer = "PlaceholderObserver"
    if qat:
        options.insert(0, "observer=MovingAverageMinMaxObserver.with_args(averaging_constant=1)")
        observer = "FakeQuantize"
    return _source(grid, f"{observer}.with_args({', '.join(options)})", "torch.per_tensor_affine", ", is_dynamic=True")


def _source(grid: Grid, observer: str, qscheme: str, rest: str = "") -> str:
    axis = "" if grid.axis is None else f", ch_axis={grid.axis}"
    return f"QuantizationSpec(torch.{INTEGERS[grid.dtype]}, {observer}, {grid.low}, {grid.high}, {qscheme}{axis}{rest})"


def has_channels(claim: Claim, variant: Variant) -> bool:
    """Whether the weights of a variant have a scale for each output channel: a quantizer may decide it for all variants."""
    if not isinstance(claim.entry, Declaration) or claim.entry.per_channel is None:
        return variant.per_channel
    return claim.entry.per_channel and claim.dtypes.weight_dtype in QUANTIZED


def declared_scheme(scheme: Scheme, claim: Claim) -> Scheme:
    """The scheme of what a quantizer declares: it knows the dimension of channels, and what stays in float."""
    assert isinstance(claim.entry, Declaration)
    weight = scheme.weight
    if weight is not None and weight.axis is not None:
        weight = replace(weight, axis=int(transposed(claim)))
    in_float = scheme.kind == "static" and (claim.dtypes.output_dtype not in QUANTIZED or claim.entry.behind)
    return replace(
        scheme,
        weight=weight,
        float_results=in_float,
        floats=("x",) if scheme.half else claim.entry.floats,
        dynamic_inputs=claim.entry.quantizes_all,
    )
