"""What each field of a `DTypeWithConstraints` means, and which fields a dtype config sets.

The source is the documentation of `DTypeWithConstraints` and `DTypeConfig` (torch/ao/quantization/backend_config), and
nothing that torch's code does: that is what the meaning is held against.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.ao.quantization import FakeQuantizeBase, FixedQParamsFakeQuantize, FixedQParamsObserver
from torch.ao.quantization.backend_config import DTypeConfig, DTypeWithConstraints

from conformance.results.constraints import FIELDS, SIDES
from conformance.results.findings.constraints import Number, Violation


def constrained(dtypes: DTypeConfig) -> Iterator[tuple[str, str]]:
    """Yield side and field of every constraint that a dtype config sets."""
    for side in SIDES:
        constraints = of_side(dtypes, side)
        for field in FIELDS:
            if getattr(constraints, field) is not None:
                yield side, field


def of_side(dtypes: DTypeConfig, side: str) -> DTypeWithConstraints:
    return getattr(dtypes, f"{side}_dtype_with_constraints")  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Standing:
    """How an observer stands with a field: what it breaks, or what the documentation leaves open; else it satisfies it."""

    broken: str = ""
    open: str = ""


SATISFIED = Standing()


def _observer(made: Any) -> Any:
    """The observer of a fake-quantize, or the observer itself."""
    return made.activation_post_process if isinstance(made, FakeQuantizeBase) else made


def _quant_min(bound: float, made: Any) -> Standing:
    low = getattr(_observer(made), "quant_min", None)
    if low is None:
        return Standing(open="it has no quant_min")
    return Standing(f"quant_min {low} is below {bound}") if low < bound else SATISFIED


def _quant_max(bound: float, made: Any) -> Standing:
    high = getattr(_observer(made), "quant_max", None)
    if high is None:
        return Standing(open="it has no quant_max")
    return Standing(f"quant_max {high} is above {bound}") if high > bound else SATISFIED


def _scale_min(bound: float, made: Any) -> Standing:
    """An observer's least scale is its eps, or the only scale that it ever gives."""
    observer = _observer(made)
    eps = getattr(observer, "eps", None)
    if eps is not None:
        return Standing(f"eps {float(eps)!r} is below {bound!r}") if not float(eps) >= bound else SATISFIED
    if isinstance(observer, FixedQParamsObserver):
        scale = float(observer.scale)
        if not scale >= bound:
            return Standing(f"scale {scale!r} is below {bound!r}")
    return Standing(open="it has no eps")


def _scale_max(bound: float, made: Any) -> Standing:
    return Standing(open="the documentation says that it is not enforced")


def _fixed(made: Any) -> bool:
    return isinstance(made, FixedQParamsObserver | FixedQParamsFakeQuantize)


def _scale_exact(bound: float, made: Any) -> Standing:
    if not _fixed(made):
        return Standing(f"{type(made).__name__} has no fixed qparams")
    scale = float(_observer(made).scale)
    return SATISFIED if scale == _float32(bound) else Standing(f"scale is {scale!r}, not {bound!r}")


def _zero_point_exact(bound: float, made: Any) -> Standing:
    if not _fixed(made):
        return Standing(f"{type(made).__name__} has no fixed qparams")
    zero_point = int(_observer(made).zero_point)
    return SATISFIED if zero_point == bound else Standing(f"zero point is {zero_point}, not {bound}")


def _float32(value: float) -> float:
    """The scale that an exact match means: observers keep scales in float32, so that none can match what lies between. What
    an engine makes of it is held to that exactly."""
    return float(torch.tensor(value, dtype=torch.float32))


_ASKED: dict[str, Callable[[float, Any], Standing]] = {
    "quant_min_lower_bound": _quant_min,
    "quant_max_upper_bound": _quant_max,
    "scale_min_lower_bound": _scale_min,
    "scale_max_upper_bound": _scale_max,
    "scale_exact_match": _scale_exact,
    "zero_point_exact_match": _zero_point_exact,
}


def standing(constraints: DTypeWithConstraints, field: str, made: Any) -> Standing:
    """How what a QConfig makes, an observer or a fake-quantize, stands with a field that is set."""
    return _ASKED[field](getattr(constraints, field), made)


def standings(constraints: DTypeWithConstraints, made: Any) -> dict[str, Standing]:
    """How what a QConfig makes stands with every field that is set and that it does not satisfy."""
    found = {f: standing(constraints, f, made) for f in FIELDS if getattr(constraints, f) is not None}
    return {field: one for field, one in found.items() if one != SATISFIED}


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
