"""Recipes: observers and a QConfigMapping that satisfy a dtype config, as source text and as plain values."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver
from torch.ao.quantization.backend_config import (
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)

from conformance.configs.engines import ENGINE_TABLE
from conformance.oracle.scheme import ALWAYS, Grid, Scheme

from .operators.expressions import Call, Source
from .operators.variant import ALONE, Context

RANGES: dict[torch.dtype, tuple[int, int]] = {
    torch.quint8: (0, 255),
    torch.qint8: (-128, 127),
    torch.quint4x2: (0, 15),
    torch.qint32: (-(2**31), 2**31 - 1),
}
QUANTIZED = frozenset(RANGES)


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


def observes_inputs(dtypes: DTypeConfig) -> bool:
    """Whether the ranges of inputs are observed: they are quantized, and not when the model runs."""
    return not dtypes.is_dynamic and dtypes.input_dtype in QUANTIZED


def activation_constraints(dtypes: DTypeConfig) -> DTypeWithConstraints:
    """The constraints that the observer of activations has to satisfy: those of the input, or those of the output where only
    these fix the qparams. A QConfig has one observer for both."""
    given, output = dtypes.input_dtype_with_constraints, dtypes.output_dtype_with_constraints
    fixed_after = given.scale_exact_match is None and output.scale_exact_match is not None
    return output if fixed_after and given.dtype == output.dtype else given


def shares(entry: BackendPatternConfig) -> tuple[int, ...]:
    """The numbers of tensor arguments with which the output of an entry's operator has the qparams of its input."""
    shared, by_count = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT, entry._num_tensor_args_to_observation_type
    return tuple(count for count in ALWAYS if by_count.get(count, entry.observation_type) is shared)


@dataclass(frozen=True)
class Recipe:
    """How one case is quantized.

    `qconfig` and `mapping` are source text of the pattern's QConfig and of the QConfigMapping, over the names of torch.ao;
    `scheme` has the same in plain values. `steps` is the number of steps between the codes of activations,
    `weight_levels` the greatest code of weights.
    """

    scheme: Scheme
    qconfig: str
    mapping: str
    steps: int
    weight_levels: int = 127

    @property
    def kind(self) -> str:
        return self.scheme.kind


def _grid(
    constrained: DTypeWithConstraints, zero_point: str, *, reduced: bool = False, axis: int | None = None
) -> Grid:
    """The widest grid within the constraints."""
    assert constrained.dtype is not None
    low, high = RANGES[constrained.dtype]
    scale, lowest, highest = (
        constrained.scale_exact_match,
        constrained.quant_min_lower_bound,
        constrained.quant_max_upper_bound,
    )
    if reduced and constrained.dtype == torch.quint8 and scale is None:
        low, high = 0, 127
    return Grid(
        dtype_name(constrained.dtype),
        low if lowest is None else max(low, int(lowest)),
        high if highest is None else min(high, int(highest)),
        zero_point,
        constrained.scale_min_lower_bound,
        axis,
        None if scale is None else (scale, int(constrained.zero_point_exact_match or 0)),
    )


def scheme(
    dtypes: DTypeConfig,
    *,
    engine: str,
    qat: bool,
    per_channel: bool,
    shares: tuple[int, ...],
    fused: bool,
    apart: bool,
    symmetric: bool,
    by_row: bool,
    context: Context = ALONE,
    prelude_keeps: bool = True,
) -> Scheme:
    """Return the scheme of a dtype config on an engine.

    `apart` if another operator precedes the pattern in the model, `symmetric` if zero is in the middle of the codes of
    activations, `by_row` if weights have a scale and a float zero point for each row, as tables of embeddings do, and
    `prelude_keeps` if an activation before the pattern keeps qparams.
    """
    kind = dtype_config_name(dtypes).split("-")[0]
    reduced = ENGINE_TABLE[engine].reduced_range
    constrained, weight = activation_constraints(dtypes), dtypes.weight_dtype_with_constraints
    activation = others = weights = None
    if constrained.dtype in QUANTIZED:
        activation = _grid(constrained, "symmetric" if symmetric else "affine", reduced=reduced)
        of_others = _grid(replace(constrained, scale_exact_match=None), "affine", reduced=reduced)
        if context.unasked:  # what takes its result observes it, whatever the entry says
            activation, shares = of_others, ()
        elif apart:
            others = of_others
    if weight.dtype in QUANTIZED:
        by_row = by_row and kind == "weight"
        weights = _grid(weight, "float" if by_row else "symmetric", axis=0 if by_row or per_channel else None)
    half = kind == "dynamic" and weight.dtype == torch.float16
    before, after = ([n.keeps_qparams for n in neighbours] for neighbours in (context.before, context.after))
    return Scheme(
        kind,
        activation,
        weights,
        half,
        shares,
        fused,
        others,
        qat,
        tuple(before),
        tuple(after),
        context.applications,
        prelude_keeps,
    )


QSCHEMES = {"affine": "affine", "symmetric": "symmetric", "float": "affine_float_qparams"}


def _observer(grid: Grid, *, qat: bool) -> str:
    """Source of an observer of a grid or, for QAT, a fake-quantize."""
    eps = "" if grid.floor is None else f", eps={grid.floor!r}"
    fields = f"dtype=torch.{grid.dtype}, qscheme=torch.per_{'tensor' if grid.axis is None else 'channel'}"
    fields += f"_{QSCHEMES[grid.zero_point]}, quant_min={grid.low}, quant_max={grid.high}{eps}"
    name = "PowerOfTwoObserver"
    if grid.axis is not None:
        name, fields = "PowerOfTwoPerChannelObserver", f"{fields}, ch_axis={grid.axis}"
    return f"FakeQuantize.with_args(observer={name}, {fields})" if qat else f"{name}.with_args({fields})"


def _activation(dtypes: DTypeConfig, case_scheme: Scheme) -> str:
    constrained, grid = activation_constraints(dtypes), case_scheme.activation
    dtype = constrained.dtype
    if grid is None:
        dynamic = ", is_dynamic=True" if dtypes.is_dynamic else ""
        return f"PlaceholderObserver.with_args(dtype={dtype or torch.float}{dynamic})"
    if dtypes.is_dynamic:
        whole = _grid(constrained, "affine")  # the engine chooses the range of its kernel
        fields = f"dtype={dtype}, quant_min={whole.low}, quant_max={whole.high}, is_dynamic=True"
        if grid.floor is not None:
            fields += f", eps={grid.floor!r}"
        if case_scheme.qat:
            return f"FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, averaging_constant=1, {fields})"
        return f"PlaceholderObserver.with_args({fields})"
    if grid.fixed is not None:
        fields = f"scale={grid.fixed[0]!r}, zero_point={grid.fixed[1]!r}"
        fields += f", dtype={dtype}, quant_min={grid.low}, quant_max={grid.high}"
        if case_scheme.qat:
            return f"FixedQParamsFakeQuantize.with_args(observer=FixedQParamsObserver.with_args({fields}))"
        return f"FixedQParamsObserver.with_args({fields})"
    return _observer(grid, qat=case_scheme.qat)


def _weight(constrained: DTypeWithConstraints, case_scheme: Scheme, *, per_channel: bool) -> str:
    if case_scheme.weight is not None:
        return _observer(case_scheme.weight, qat=case_scheme.qat)
    if constrained.dtype is not None:
        return f"PlaceholderObserver.with_args(dtype={constrained.dtype})"
    # a qconfig always has a weight observer, and operators without a declared weight, such as PReLU, use it
    grid = _grid(DTypeWithConstraints(torch.qint8), "symmetric", axis=0 if per_channel else None)
    return _observer(grid, qat=case_scheme.qat)


def _qconfig(activation: str, weight: str) -> Call:
    """The QConfig of two observers, as source text."""
    return Call("QConfig", (), {"activation": Source(activation), "weight": Source(weight)})


def recipe(
    dtypes: DTypeConfig,
    *,
    engine: str,
    qat: bool,
    per_channel: bool,
    target: str = "",
    shares: tuple[int, ...] = (),
    fused: bool = False,
    symmetric: bool = False,
    by_row: bool = True,
    context: Context = ALONE,
    prelude_keeps: bool = True,
) -> Recipe:
    """Return the `exact` recipe for a dtype config on an engine.

    `target` is the source of the object type that gets the pattern's qconfig if the model contains another operator that
    must not have it, or that gets none if the context leaves the pattern in float; it is empty if the qconfig is global.
    `shares`, `fused` and `prelude_keeps` are as in `Scheme`, `symmetric` and `by_row` as in `scheme`. `context` is that of
    the variant.
    """
    case_scheme = scheme(
        dtypes,
        engine=engine,
        qat=qat,
        per_channel=per_channel,
        shares=shares,
        fused=fused,
        apart=bool(target),
        symmetric=symmetric,
        by_row=by_row,
        context=context,
        prelude_keeps=prelude_keeps,
    )
    # the qconfig of an unasked pattern is that of the layers beside it
    constrained = DTypeWithConstraints() if context.unasked else dtypes.weight_dtype_with_constraints
    weight = _weight(constrained, case_scheme, per_channel=per_channel)
    qconfig = _qconfig(_activation(dtypes, case_scheme), weight)
    mapping = "QConfigMapping().set_global(qconfig)"
    if context.unasked:
        mapping += f".set_object_type({target}, None)"
    elif case_scheme.others is not None:
        others = _qconfig(_observer(case_scheme.others, qat=qat), weight)
        mapping = f"QConfigMapping().set_global({others}).set_object_type({target}, qconfig)"
    steps = 255 if case_scheme.activation is None else case_scheme.activation.high - case_scheme.activation.low
    return Recipe(case_scheme, qconfig, mapping, steps)


BY_KIND = {
    ("static-qint8", False): "default_symmetric_qnnpack_qconfig",
    ("static-qint8", True): "default_symmetric_qnnpack_qat_qconfig",
    ("dynamic-quint8", False): "default_dynamic_qconfig",
    ("dynamic-quint8", True): "default_dynamic_qat_qconfig",
    ("dynamic-float16", False): "float16_dynamic_qconfig",
    ("weight-quint8", False): "float_qparams_weight_only_qconfig",
    ("weight-quint8", True): "default_embedding_qat_qconfig",
    ("weight-quint4x2", False): "float_qparams_weight_only_qconfig_4bit",
    ("weight-quint4x2", True): "default_embedding_qat_qconfig_4bit",
}
"""torch's qconfig for a dtype config, and whether it is for QAT, if no backend's mapping has one for it."""

NAMES = (
    *BY_KIND.values(),
    "get_default_qat_qconfig",
    "get_default_qat_qconfig_mapping",
    "get_default_qconfig",
    "get_default_qconfig_mapping",
    "QConfig",
    "QConfigMapping",
    "FakeQuantize",
    "FixedQParamsFakeQuantize",
    "FixedQParamsObserver",
    "FusedMovingAvgObsFakeQuantize",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
)
"""Names of `torch.ao.quantization` that recipes refer to."""

DEFAULT_ENGINE = "qnnpack"
"""The engine whose default mapping is used for engines that have none in torch."""


RANGE_OBSERVERS = {
    "PowerOfTwoObserver": "MinMaxObserver",
    "PowerOfTwoPerChannelObserver": "PerChannelMinMaxObserver",
}
"""The observers of torch that take the range of what they see, by those of `exact` recipes, which round its scale up."""


def range_recipe(dtypes: DTypeConfig, exact: Recipe) -> Recipe:
    """Return the recipe with torch's range observers in place of those of the `exact` one: scales may be any number.

    The default mappings of some engines have histogram observers instead, which take 20 ms a call and clip outliers. Data
    beyond the range that was observed are clipped too. As in those mappings, parameters without a declared dtype, the slopes
    of a PReLU, are quantized to quint8.
    """
    qconfig, mapping = exact.qconfig, exact.mapping
    if dtypes.weight_dtype is None:
        slopes = _observer(_grid(DTypeWithConstraints(torch.quint8), "affine"), qat=exact.scheme.qat)
        assert isinstance(qconfig, Call)  # of two observers, as `recipe` returns it
        qconfig = _qconfig(qconfig.keywords["activation"], slopes)
    for name, torchs in RANGE_OBSERVERS.items():
        qconfig, mapping = qconfig.replace(name, torchs), mapping.replace(name, torchs)
    return replace(exact, qconfig=qconfig, mapping=mapping)


def typical_recipe(dtypes: DTypeConfig, exact: Recipe, *, engine: str) -> Recipe:
    """Return the `typical` recipe: torch's qconfig mapping for the engine.

    It is torch's qconfig for the dtype config if the mapping does not quantize it, and `exact` if torch has neither. torch's
    static ones quantize weights to qint8, and those for weights alone by row.
    """
    qat, weight = exact.scheme.qat, exact.scheme.weight
    kind = dtype_config_name(dtypes)
    if kind.startswith("weight") and weight is not None and weight.zero_point != "float":
        return exact
    if kind == "static-quint8" and (weight is None or weight.dtype == "qint8"):
        name = engine if ENGINE_TABLE[engine].native else DEFAULT_ENGINE
        infix = "_qat" if qat else ""
        qconfig, mapping = f'get_default{infix}_qconfig("{name}")', f'get_default{infix}_qconfig_mapping("{name}")'
    elif (kind, qat) in BY_KIND:
        qconfig, mapping = BY_KIND[kind, qat], "QConfigMapping().set_global(qconfig)"
    else:
        return exact
    return replace(exact, qconfig=qconfig, mapping=mapping)
