"""Examples for constraints: QConfigs at a bound and the data that observers observe, as source text, the simplest first.

They are finite: values at a bound, one step to either side, and far away.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.ao.quantization.backend_config import DTypeConfig, DTypeWithConstraints

from conformance.cases.constraints import of_side
from conformance.cases.recipes import QUANTIZED, RANGES, dtype_name


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


def _values(field: str, bound: float) -> list[Any]:
    """Values at the bound of a field: the first satisfies it, the second violates it by the least step."""
    if field.startswith("scale"):
        return [bound, ulp(bound, 0.0), ulp(bound, torch.inf), 2.0**-23]  # the last is the default eps of observers
    whole = int(bound)
    if field == "quant_min_lower_bound":
        return [whole, whole - 1, whole + 1]
    return [whole, whole + 1, whole - 1, *([whole ^ 128] if field == "zero_point_exact_match" else [])]


def _with(target: Target, spec: ObserverSpec, field: str, value: Any) -> ObserverSpec:
    """A spec with a value of a field: in its range, as its eps, or in its fixed qparams."""
    scale, zero_point = spec.fixed or (1.0, 0)
    match field:
        case "quant_min_lower_bound":
            return _ranged(target, spec, low=min(value, 0))
        case "quant_max_upper_bound":
            return _ranged(target, spec, high=max(value, 1))
        case "scale_exact_match":
            return replace(spec, fixed=(value, zero_point))
        case "zero_point_exact_match":
            return replace(spec, fixed=(scale, value))
    return replace(spec, fixed=(value, 0)) if spec.fixed else replace(spec, eps=value)


def _ranged(target: Target, spec: ObserverSpec, **bound: int) -> ObserverSpec:
    """The spec with another quant_min or quant_max; observers take both or neither."""
    ranged = replace(spec, **{**target.range, **bound})  # type: ignore[arg-type]
    inside = bool(ranged.fake) and ranged.fake != "FusedMovingAvgObsFakeQuantize"
    return replace(ranged, inside=ranged.inside or inside)


def _unfixed(target: Target) -> list[ObserverSpec]:
    """Observers that violate a constraint on fixed qparams: one without fixed qparams, and a FakeQuantize of a
    FixedQParamsObserver, which is not a FixedQParamsFakeQuantize."""
    ordinary = replace(target.spec, observer="MinMaxObserver", fixed=None, fake="FakeQuantize" if target.qat else "")
    return [ordinary, replace(target.spec, fake="FakeQuantize")]


def qconfigs_around(target: Target, field: str) -> list[str]:
    """QConfigs that satisfy every constraint, or violate this field alone; the simplest first.

    The simplest observer gets all values at the bound, the others get the first two.
    """
    first, *rest = styles(target)
    if field == "scale_min_lower_bound" and not (target.side == "weight" or target.dynamic or target.spec.fixed):
        without_eps = ObserverSpec("FixedQParamsObserver", target.spec.dtype, fixed=(1.0, 0))
        rest.append(_ranged(target, without_eps, **target.range))
    values = _values(field, getattr(target.constraints, field))
    specs = [_with(target, first, field, value) for value in values]
    specs += _unfixed(target) if field.endswith("exact_match") else []
    specs += [_with(target, spec, field, value) for spec in rest for value in values[:2]]
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


def calibrations(target: Target) -> list[Calibration]:
    """QConfigs that satisfy every constraint, with data or weights; the simplest first.

    The simplest QConfig gets all data, the others get two of them. A histogram observer is left out, because it takes twenty
    times as long as any other.
    """
    first, *others = (target.qconfig(spec) for spec in styles(target) if spec.observer != "HistogramObserver")
    examples = observations(target, first)
    for qconfig in others:
        examples += observations(target, qconfig)[:2]
        if target.side == "weight":
            examples.append(Calibration(qconfig, weights=ROUNDED))
        if target.side == "weight" and target.qat:
            examples.append(Calibration(qconfig, weights="w", trained=TRAINED))
    return examples
