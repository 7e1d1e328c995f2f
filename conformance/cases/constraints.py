"""The meaning of each field of a `DTypeWithConstraints`, for observers and for quantized tensors.

The source is the documentation of `DTypeWithConstraints` and `DTypeConfig` (torch/ao/quantization/backend_config), never the
behaviour of torch's code, because torch's code is tested against this meaning.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.ao.quantization import FakeQuantizeBase, FixedQParamsFakeQuantize, FixedQParamsObserver
from torch.ao.quantization.backend_config import DTypeConfig, DTypeWithConstraints

from conformance.results.constraints import FIELDS, SIDES, Constraint
from conformance.results.findings.constraints import NoFixedQparams, Number, ObserverViolation, Violation


def constrained(dtypes: DTypeConfig) -> Iterator[Constraint]:
    """Yield every constraint that a dtype config sets."""
    for side in SIDES:
        for field in FIELDS:
            if getattr(of_side(dtypes, side), field) is not None:
                yield Constraint(side, field)


def of_side(dtypes: DTypeConfig, side: str) -> DTypeWithConstraints:
    """The constraints on one side (input, output or weight) of a dtype config."""
    return getattr(dtypes, f"{side}_dtype_with_constraints")  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Assessment:
    """Whether an observer satisfies a field: the violation, or why the documentation leaves it `open`, or neither."""

    violation: ObserverViolation | NoFixedQparams | None = None
    open: str = ""


SATISFIED = Assessment()


def _observer(post_process: Any) -> Any:
    """The observer of a fake-quantize, or the observer itself."""
    return post_process.activation_post_process if isinstance(post_process, FakeQuantizeBase) else post_process


def _violated(field: str, attribute: str, got: Number, bound: Number) -> Assessment:
    return Assessment(ObserverViolation(field, attribute, got, bound))


def _assess_quant_min(bound: Number, post_process: Any) -> Assessment:
    low = getattr(_observer(post_process), "quant_min", None)
    if low is None:
        return Assessment(open="it has no quant_min")
    return _violated("quant_min_lower_bound", "quant_min", low, bound) if low < bound else SATISFIED


def _assess_quant_max(bound: Number, post_process: Any) -> Assessment:
    high = getattr(_observer(post_process), "quant_max", None)
    if high is None:
        return Assessment(open="it has no quant_max")
    return _violated("quant_max_upper_bound", "quant_max", high, bound) if high > bound else SATISFIED


def _assess_scale_min(bound: Number, post_process: Any) -> Assessment:
    """The least scale of an observer is its eps; without an eps it is the fixed scale."""
    observer = _observer(post_process)
    eps = getattr(observer, "eps", None)
    if eps is not None:
        # NaN violates every bound
        return SATISFIED if float(eps) >= bound else _violated("scale_min_lower_bound", "eps", float(eps), bound)
    if isinstance(observer, FixedQParamsObserver):
        scale = float(observer.scale)
        if not scale >= bound:
            return _violated("scale_min_lower_bound", "scale", scale, bound)
    return Assessment(open="it has no eps")


def _assess_scale_max(bound: Number, post_process: Any) -> Assessment:
    return Assessment(open="the documentation says that it is not enforced")


def _has_fixed_qparams(post_process: Any) -> bool:
    return isinstance(post_process, FixedQParamsObserver | FixedQParamsFakeQuantize)


def _assess_scale(bound: Number, post_process: Any) -> Assessment:
    if not _has_fixed_qparams(post_process):
        return Assessment(NoFixedQparams(type(post_process).__name__))
    scale = float(_observer(post_process).scale)
    return SATISFIED if scale == _float32(bound) else _violated("scale_exact_match", "scale", scale, bound)


def _assess_zero_point(bound: Number, post_process: Any) -> Assessment:
    if not _has_fixed_qparams(post_process):
        return Assessment(NoFixedQparams(type(post_process).__name__))
    zero_point = int(_observer(post_process).zero_point)
    return SATISFIED if zero_point == bound else _violated("zero_point_exact_match", "zero_point", zero_point, bound)


def _float32(value: float) -> float:
    """The float32 nearest to an exact scale: observers and tensors store scales as float32."""
    return float(torch.tensor(value, dtype=torch.float32))


_ASSESS: dict[str, Callable[[Number, Any], Assessment]] = {
    "quant_min_lower_bound": _assess_quant_min,
    "quant_max_upper_bound": _assess_quant_max,
    "scale_min_lower_bound": _assess_scale_min,
    "scale_max_upper_bound": _assess_scale_max,
    "scale_exact_match": _assess_scale,
    "zero_point_exact_match": _assess_zero_point,
}


def assess(constraints: DTypeWithConstraints, field: str, post_process: Any) -> Assessment:
    """Whether an observer or fake-quantize satisfies a field that is set."""
    return _ASSESS[field](getattr(constraints, field), post_process)


def unsatisfied(constraints: DTypeWithConstraints, post_process: Any) -> dict[str, Assessment]:
    """The assessments of an observer or fake-quantize by field, for each field that is set and not satisfied."""
    assessments = {f: assess(constraints, f, post_process) for f in FIELDS if getattr(constraints, f) is not None}
    return {field: assessment for field, assessment in assessments.items() if assessment != SATISFIED}


@dataclass(frozen=True)
class Quantized:
    """A quantized tensor: scales and zero points (float64, one in all or one for each channel) and integer codes."""

    scales: Tensor
    zero_points: Tensor
    codes: Tensor


def _least_scale(bound: Number, tensor: Quantized) -> Number | None:
    # a NaN scale violates every bound
    return None if bool((tensor.scales >= bound).all()) else tensor.scales.min().item()


def _greatest_scale(bound: Number, tensor: Quantized) -> Number | None:
    return tensor.scales.max().item() if bool((tensor.scales > bound).any()) else None


def _other_scale(bound: Number, tensor: Quantized) -> Number | None:
    return tensor.scales[0].item() if bool((tensor.scales != _float32(bound)).any()) else None


def _other_zero_point(bound: Number, tensor: Quantized) -> Number | None:
    return tensor.zero_points[0].item() if bool((tensor.zero_points != bound).any()) else None


def _least_code(bound: Number, tensor: Quantized) -> Number | None:
    low = tensor.codes.min().item() if tensor.codes.numel() else bound
    return low if low < bound else None


def _greatest_code(bound: Number, tensor: Quantized) -> Number | None:
    high = tensor.codes.max().item() if tensor.codes.numel() else bound
    return high if high > bound else None


_VIOLATING: dict[str, Callable[[Number, Quantized], Number | None]] = {
    "scale_min_lower_bound": _least_scale,
    "scale_max_upper_bound": _greatest_scale,
    "scale_exact_match": _other_scale,
    "zero_point_exact_match": _other_zero_point,
    "quant_min_lower_bound": _least_code,
    "quant_max_upper_bound": _greatest_code,
}
"""The scale, zero point or code of a tensor that violates a field's bound, or None if the tensor satisfies it."""


def violation(constraints: DTypeWithConstraints, field: str, tensor: Quantized) -> Violation | None:
    """The violation of one field by a quantized tensor; None if it satisfies the field or the field is not set."""
    bound = getattr(constraints, field)
    got = None if bound is None else _VIOLATING[field](bound, tensor)
    return None if got is None else Violation(field, got, bound)


def violations(constraints: DTypeWithConstraints, tensor: Quantized) -> Iterator[Violation]:
    """The violations of all fields by a quantized tensor."""
    for field in _VIOLATING:
        if (found := violation(constraints, field, tensor)) is not None:
            yield found
