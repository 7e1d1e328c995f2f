"""Hypothesis strategies for constraints, QConfigs and the data that observers observe, all as source text.

The examples of the bounded search are finite and come first: values at a bound, one step to either side, and far away. A
hundred examples cover them all. The nightly search draws arbitrary values as well.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch.ao.quantization.backend_config import DTypeConfig, DTypeWithConstraints

from conformance.cases.constraints import of_side
from conformance.cases.recipes import QUANTIZED, RANGES, dtype_name
from conformance.results.constraints import FIELDS

BOUNDED_EXAMPLES = 100
"""Number of examples of the bounded search; with a hypothesis profile that has more, arbitrary values are drawn too."""


def thorough() -> bool:
    """Whether the hypothesis profile tries more examples than the bounded search."""
    return settings().max_examples > BOUNDED_EXAMPLES


def ulp(value: float, towards: float) -> float:
    """The float32 next to `value` in the direction of `towards`."""
    return float(torch.nextafter(torch.tensor(value), torch.tensor(towards)))


@dataclass(frozen=True)
class ObserverSpec:
    """An observer, or a fake-quantize of an observer, with its arguments; arguments that are None are left out.

    `low` and `high` are quant_min and quant_max, `fixed` is a scale and a zero point, `fake` the name of the fake-quantize.
    With `inside`, the observer's own arguments give a fake-quantize its range: the observer validates it less strictly.
    """

    observer: str = "MinMaxObserver"
    dtype: str = "qint8"
    qscheme: str | None = None
    low: int | None = None
    high: int | None = None
    eps: float | None = None
    axis: int | None = None
    fixed: tuple[float, int] | None = None
    averaging: int | None = None
    dynamic: bool = False
    fake: str = ""
    inside: bool = False

    @property
    def arguments(self) -> str:
        scale, zero_point = self.fixed or (None, None)
        arguments = {
            "scale": scale,
            "zero_point": zero_point,
            "dtype": f"torch.{self.dtype}",
            "qscheme": self.qscheme and f"torch.{self.qscheme}",
            "quant_min": self.low,
            "quant_max": self.high,
            "eps": self.eps,
            "ch_axis": self.axis,
            "averaging_constant": self.averaging,
            "is_dynamic": self.dynamic or None,
        }
        return ", ".join(f"{name}={value}" for name, value in arguments.items() if value is not None)

    @property
    def source(self) -> str:
        observer = f"{self.observer}.with_args({self.arguments})"
        if self.fake and (self.fixed or self.inside):
            return f"{self.fake}.with_args(observer={observer})"
        return f"{self.fake}.with_args(observer={self.observer}, {self.arguments})" if self.fake else observer


def satisfying(constraints: DTypeWithConstraints, *, dynamic: bool = False, weight: bool = False) -> ObserverSpec:
    """The simplest observer that satisfies every constraint on a quantized dtype."""
    assert constraints.dtype in QUANTIZED
    low, high = RANGES[constraints.dtype]
    least, most = constraints.quant_min_lower_bound, constraints.quant_max_upper_bound
    spec = ObserverSpec(
        dtype=dtype_name(constraints.dtype),
        qscheme="per_tensor_symmetric" if weight else None,
        low=None if least is None and most is None else low if least is None else max(low, int(least)),
        high=None if least is None and most is None else high if most is None else min(high, int(most)),
        eps=constraints.scale_min_lower_bound,
    )
    if dynamic and not weight:
        return replace(spec, observer="PlaceholderObserver", qscheme=None, dynamic=True)
    exact, zero_point = constraints.scale_exact_match, constraints.zero_point_exact_match
    if exact is not None or zero_point is not None:
        fixed = (1.0 if exact is None else exact, int(zero_point or 0))
        return replace(spec, observer="FixedQParamsObserver", eps=None, fixed=fixed)
    return spec


@dataclass(frozen=True)
class Target:
    """One side of a dtype config in one flow. `axis` is the channel axis of weights, None for one scale per tensor."""

    dtypes: DTypeConfig
    side: str
    qat: bool = False
    axis: int | None = None

    @property
    def constraints(self) -> DTypeWithConstraints:
        return of_side(self.dtypes, self.side)

    @property
    def spec(self) -> ObserverSpec:
        return self._observer_spec(self.side, self.constraints)

    @property
    def dynamic(self) -> bool:
        return bool(self.dtypes.is_dynamic) and self.side != "weight"

    @property
    def range(self) -> dict[str, int]:
        """The widest quant_min and quant_max that satisfy the constraints."""
        assert self.constraints.dtype is not None
        low, high = RANGES[self.constraints.dtype]
        spec = self.spec
        return {"low": low if spec.low is None else spec.low, "high": high if spec.high is None else spec.high}

    def _observer_spec(self, side: str, constraints: DTypeWithConstraints) -> ObserverSpec:
        spec = satisfying(constraints, dynamic=bool(self.dtypes.is_dynamic), weight=side == "weight")
        if not self.qat:
            return spec
        if spec.fixed:
            return replace(spec, fake="FixedQParamsFakeQuantize")
        if spec.dynamic:
            return replace(spec, observer="MovingAverageMinMaxObserver", averaging=1, fake="FakeQuantize")
        return replace(spec, fake="FakeQuantize", inside=True)

    def qconfig(self, spec: ObserverSpec) -> str:
        """The QConfig with `spec` on this side and an observer that satisfies the constraints on the other."""
        weight, activation = self.dtypes.weight_dtype_with_constraints, self.dtypes.input_dtype_with_constraints
        if weight.dtype not in QUANTIZED:  # a QConfig always has a weight observer
            weight = DTypeWithConstraints(torch.qint8)
        if self.side == "weight":
            return f"QConfig(activation={self._observer_spec('input', activation).source}, weight={spec.source})"
        return f"QConfig(activation={spec.source}, weight={self._observer_spec('weight', weight).source})"


def styles(target: Target) -> list[ObserverSpec]:
    """Observers of several classes and quantization schemes that satisfy the constraints; the simplest first."""
    plain = target.spec
    if plain.fixed:
        return [plain, replace(plain, fake="" if plain.fake else "FixedQParamsFakeQuantize")]
    if plain.dynamic:
        return [plain]
    average, symmetric = "MovingAverageMinMaxObserver", "per_tensor_symmetric"
    fused = "FusedMovingAvgObsFakeQuantize"
    if target.side != "weight":
        alternative = replace(plain, observer=average, qscheme=symmetric)
        if target.qat:
            return [plain, alternative, replace(plain, observer=average, fake=fused, inside=False)]
        return [plain, alternative, replace(plain, observer="HistogramObserver")]
    specs = [plain, replace(plain, qscheme="per_tensor_affine")]
    if target.qat:
        specs.append(replace(plain, observer=average, fake=fused, inside=False))
    elif target.axis is not None:
        channels = {"qscheme": "per_channel_symmetric", "axis": target.axis}
        specs.append(replace(plain, observer="PerChannelMinMaxObserver", **channels))  # type: ignore[arg-type]
    return specs


def _low(bound: float) -> list[int]:
    """Values of quant_min: the first satisfies a lower bound, the second violates it."""
    return [int(bound), int(bound) - 1, int(bound) + 1]


def _high(bound: float) -> list[int]:
    """Values of quant_max: the first satisfies an upper bound, the second violates it."""
    return [int(bound), int(bound) + 1, int(bound) - 1]


def scales(bound: float) -> list[float]:
    """Scales at a bound, one ulp below and above it, and the default eps of observers."""
    return [bound, ulp(bound, 0.0), ulp(bound, torch.inf), 2.0**-23]


def _integers(bound: float) -> SearchStrategy[int]:
    return st.integers(int(bound) - 16, int(bound) + 16)


ANY_SCALE = st.floats(2.0**-126, 2.0**20, width=32)


def _ranged(target: Target, spec: ObserverSpec, **bound: int) -> ObserverSpec:
    """The spec with another quant_min or quant_max; observers take both or neither."""
    ranged = replace(spec, **{**target.range, **bound})  # type: ignore[arg-type]
    inside = bool(ranged.fake) and ranged.fake != "FusedMovingAvgObsFakeQuantize"
    return replace(ranged, inside=ranged.inside or inside)


def _with_quant_min(target: Target, spec: ObserverSpec, low: int) -> ObserverSpec:
    return _ranged(target, spec, low=min(low, 0))


def _with_quant_max(target: Target, spec: ObserverSpec, high: int) -> ObserverSpec:
    return _ranged(target, spec, high=max(high, 1))


def _with_eps(target: Target, spec: ObserverSpec, eps: float) -> ObserverSpec:
    """The spec with another eps, or with another fixed scale."""
    return replace(spec, fixed=(eps, 0)) if spec.fixed else replace(spec, eps=eps)


def _with_scale(target: Target, spec: ObserverSpec, scale: float) -> ObserverSpec:
    return replace(spec, fixed=(scale, (spec.fixed or (0.0, 0))[1]))


def _with_zero_point(target: Target, spec: ObserverSpec, zero_point: int) -> ObserverSpec:
    return replace(spec, fixed=((spec.fixed or (1.0, 0))[0], zero_point))


def _fixed(target: Target) -> list[ObserverSpec]:
    """An observer without eps, for constraints on the least scale."""
    if target.side == "weight" or target.dynamic or target.spec.fixed:
        return []
    return [_ranged(target, ObserverSpec("FixedQParamsObserver", target.spec.dtype, fixed=(1.0, 0)), **target.range)]


def _unfixed(target: Target) -> list[ObserverSpec]:
    """Observers that violate a constraint on fixed qparams: one without fixed qparams, and a FakeQuantize of a
    FixedQParamsObserver, which is not a FixedQParamsFakeQuantize."""
    ordinary = replace(target.spec, observer="MinMaxObserver", fixed=None, fake="FakeQuantize" if target.qat else "")
    return [ordinary, replace(target.spec, fake="FakeQuantize")]


@dataclass(frozen=True)
class FieldValues:
    """How to draw observers around the bound of a field.

    `put` sets a value in a spec, `near` lists values at the bound, `any` draws arbitrary values. The first value of `near`
    satisfies the field and the second violates it by the least step: all specs but the simplest get only these two.
    `besides` are further specs that get the values at the bound, `others` are specs that are drawn as they are.
    """

    put: Callable[[Target, ObserverSpec, Any], ObserverSpec]
    near: Callable[[float], list[Any]]
    any: Callable[[float], SearchStrategy[Any]]
    besides: Callable[[Target], list[ObserverSpec]] = lambda _: []
    others: Callable[[Target], list[ObserverSpec]] = lambda _: []


FIELD_VALUES = {
    "quant_min_lower_bound": FieldValues(_with_quant_min, _low, _integers),
    "quant_max_upper_bound": FieldValues(_with_quant_max, _high, _integers),
    "scale_min_lower_bound": FieldValues(_with_eps, scales, lambda _: ANY_SCALE, besides=_fixed),
    "scale_max_upper_bound": FieldValues(_with_eps, scales, lambda _: ANY_SCALE),
    "scale_exact_match": FieldValues(_with_scale, scales, lambda _: ANY_SCALE, others=_unfixed),
    "zero_point_exact_match": FieldValues(
        _with_zero_point, lambda bound: [*_high(bound), int(bound) ^ 128], _integers, others=_unfixed
    ),
}


def qconfigs_around(target: Target, field: str) -> SearchStrategy[str]:
    """QConfigs that satisfy every constraint, or violate this field alone; the simplest first."""
    how, bound = FIELD_VALUES[field], getattr(target.constraints, field)
    first, *rest = [*styles(target), *how.besides(target)]
    values = how.near(bound)
    put = partial(st.builds, how.put, st.just(target))
    drawn: SearchStrategy[ObserverSpec] = put(st.just(first), st.sampled_from(values))
    drawn |= put(st.sampled_from(rest or [first]), st.sampled_from(values[:2]))
    if thorough():
        drawn |= put(st.sampled_from([first, *rest]), st.sampled_from(values) | how.any(bound))
    if others := how.others(target):
        drawn |= st.sampled_from(others)
    return drawn.map(target.qconfig)


def listed_qconfigs(target: Target, field: str) -> list[str]:
    """The QConfigs that `qconfigs_around` draws in the bounded search; the simplest first."""
    how = FIELD_VALUES[field]
    first, *rest = [*styles(target), *how.besides(target)]
    values = how.near(getattr(target.constraints, field))
    specs = [how.put(target, first, value) for value in values] + how.others(target)
    specs += [how.put(target, spec, value) for spec in rest for value in values[:2]]
    return [target.qconfig(spec) for spec in specs]


ACTIVATIONS = (
    "torch.tensor([-1.0, 1.0])",
    "torch.zeros(2)",
    "torch.tensor([-(2.0**-40), 2.0**-40])",
    "torch.full((2,), 2.0**-149)",
    "torch.tensor([-1e38, 1e38])",
    "torch.tensor([-torch.inf, torch.inf])",
    "torch.empty(0)",
)
"""Data that activation observers observe: ordinary, constant, tiny, denormal, huge, infinite, empty.

NaN is left out because its effect on a scale is undocumented. Spans beyond float32 are left out because HistogramObserver
computes a NaN scale from them.
"""

WEIGHTS = ("w", "-w.abs()", "w * 0", "w * 2.0**-40", "w * 2.0**-149", "w * 2.0**100")
"""Weights as expressions of the model's own weights, `w`."""

ROUNDED = "torch.where(w < 0, -0.28125, 0.84375)"
"""Weights whose minimum lies at a tie of -127..127 in affine codes.

An observer divides by the scale and rounds half to even; a quantizer multiplies by the reciprocal, which is slightly larger.
"""

TRAINED = "w * 2"
"""Weights after a training step that a moving average observer has not followed yet."""


@dataclass(frozen=True, order=True)
class Calibration:
    """A QConfig with the source text of the data that activation observers observe, or of the weights in terms of `w`.

    `trained` is the source text of the weights after a training step that follows the observation; empty without one.
    """

    qconfig: str
    data: str = ""
    weights: str = ""
    trained: str = ""


def observations(target: Target, qconfig: str) -> list[Calibration]:
    """A QConfig with each of the data or weights for the target's side; the simplest first."""
    if target.side == "weight":
        return [Calibration(qconfig, weights=weights) for weights in WEIGHTS]
    return [Calibration(qconfig, data=data) for data in ACTIVATIONS]


def listed_calibrations(target: Target) -> list[Calibration]:
    """QConfigs that satisfy every constraint, with data or weights; the simplest first.

    The simplest QConfig gets all data, the others get two of them in the bounded search.
    """
    specs = styles(target)
    if not thorough():  # a histogram observer takes twenty times as long as any other
        specs = [spec for spec in specs if spec.observer != "HistogramObserver"]
    first, *others = (target.qconfig(spec) for spec in specs)
    listed = observations(target, first)
    for qconfig in others:
        listed += observations(target, qconfig)[: None if thorough() else 2]
        if target.side == "weight":
            listed.append(Calibration(qconfig, weights=ROUNDED))
        if target.side == "weight" and target.qat:
            listed.append(Calibration(qconfig, weights="w", trained=TRAINED))
    return listed


def calibrations(target: Target) -> SearchStrategy[Calibration]:
    """Strategy of the calibrations that are listed for a target."""
    return st.sampled_from(listed_calibrations(target))


def constraints(dtype: torch.dtype = torch.qint8) -> SearchStrategy[DTypeWithConstraints]:
    """Constraints on a dtype with any subset of the fields set."""
    low, high = RANGES[dtype]
    values: dict[str, SearchStrategy[Any]] = {
        "quant_min_lower_bound": st.integers(low, 0),
        "quant_max_upper_bound": st.integers(1, high),
        "scale_min_lower_bound": st.sampled_from([2.0**-12, 2.0**-23]),
        "scale_max_upper_bound": st.sampled_from([1.0, 2.0**-4]),
        "scale_exact_match": st.sampled_from([2.0**-8, 2.0**-7]),
        "zero_point_exact_match": st.integers(low, high),
    }
    assert set(values) == set(FIELDS)
    return st.builds(DTypeWithConstraints, st.just(dtype), **{f: st.none() | values[f] for f in FIELDS})
