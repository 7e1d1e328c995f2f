"""Rules about dtype configs and observation types: what is refused, ignored, or contradicts itself."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch.ao.quantization.backend_config import DTypeConfig, DTypeWithConstraints, ObservationType

from conformance.cases.operators import has_weights
from conformance.configs.names import pattern_name
from conformance.configs.spelling import computation, is_batch_norm

from .declared import Declared, DeclaredEntry
from .rules import error, warning

RANGES: dict[torch.dtype, tuple[int, int]] = {
    torch.quint8: (0, 255),
    torch.qint8: (-128, 127),
    torch.quint4x2: (0, 15),
    torch.quint2x4: (0, 3),
    torch.qint32: (-(2**31), 2**31 - 1),
    torch.uint8: (0, 255),
    torch.int8: (-128, 127),
    torch.int16: (-(2**15), 2**15 - 1),
    torch.int32: (-(2**31), 2**31 - 1),
}
"""The codes of each dtype that observers quantize to."""
FLOATING = (torch.float32, torch.float16, torch.bfloat16)
DYNAMIC = (torch.quint8, torch.qint8, torch.uint8, torch.int8, torch.float16)
"""Dtypes of inputs that torch quantizes when a model is executed."""
OTHER_RANGE = frozenset(
    {"add", "sub", "mul", "div", "truediv", "matmul", "bmm", "sum", "gelu", "silu", "softmax", "layernorm"}
)
"""What operators compute whose results leave the range of their input."""
SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
UNOBSERVED = ObservationType.INPUT_OUTPUT_NOT_OBSERVED


def constrained(*dtype_configs: DTypeConfig) -> Iterator[tuple[str, DTypeWithConstraints]]:
    """The parts of dtype configs that have constraints, with their names."""
    for dtypes, part in product(dtype_configs, ("input", "output", "weight")):
        value = getattr(dtypes, f"{part}_dtype_with_constraints")
        if isinstance(value, DTypeWithConstraints):
            yield part, value


def quantized(dtype: Any) -> bool:
    return dtype in RANGES


@error(
    "dtype-configs-not-a-list",
    "BackendPatternConfig(nn.ReLU).set_dtype_configs(DTypeConfig(torch.quint8, torch.quint8))",
)
def _not_a_list(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """torch iterates over the dtype configs of an entry."""
    if not isinstance(one.entry.dtype_configs, list):
        yield f"its dtype_configs are a {type(one.entry.dtype_configs).__name__}"


@error("dtype-config-type", 'BackendPatternConfig(nn.ReLU).set_dtype_configs([{"input_dtype": torch.quint8}])')
def _type(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """A dtype config is a DTypeConfig."""
    if isinstance(one.entry.dtype_configs, list):
        for value in one.entry.dtype_configs:
            if not isinstance(value, DTypeConfig):
                yield f"one of its dtype configs is a {type(value).__name__}"


@error("promises-nothing", "BackendPatternConfig(nn.ReLU)")
def _nothing(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """An entry without dtype configs and without a fuser has no effect."""
    if one.entry.dtype_configs == [] and one.entry.fuser_method is None:
        yield "it has neither dtype configs nor a fuser"


@error("dtype-unknown", "DTypeConfig(input_dtype=torch.int64)")
def _unknown(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """No observer quantizes to such a dtype, so no QConfig satisfies the dtype config."""
    for dtypes in one.dtype_configs:
        named = [(part, value.dtype) for part, value in constrained(dtypes)] + [("bias", dtypes.bias_dtype)]
        for part, dtype in named:
            if dtype is not None and dtype not in RANGES and dtype not in FLOATING:
                yield f"its {part} has the dtype {dtype}"


@error("dtype-config-duplicate", "set_dtype_configs([weighted, weighted])")
def _duplicate(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """Of two equal dtype configs the second has no effect."""
    for number, dtypes in enumerate(one.dtype_configs):
        if dtypes in one.dtype_configs[:number]:
            yield f"its dtype config {number + 1} equals an earlier one"


@warning("all-float", "DTypeConfig(torch.float32, torch.float32)")
def _all_float(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """A dtype config of float32 alone promises no quantization."""
    for number, dtypes in enumerate(one.dtype_configs):
        found = [value.dtype for _, value in constrained(dtypes)]
        if not dtypes.is_dynamic and all(dtype in (None, torch.float32) for dtype in found):
            yield f"its dtype config {number + 1} quantizes nothing"


@error("quant-range", "DTypeWithConstraints(torch.quint8, quant_min_lower_bound=-128)")
def _quant_range(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """The codes of a dtype bound the quantization range: outside them no observer satisfies the constraint."""
    for part, value in constrained(*one.dtype_configs):
        low, high = value.quant_min_lower_bound, value.quant_max_upper_bound
        least, most = RANGES.get(value.dtype, (-torch.inf, torch.inf))  # type: ignore[arg-type]
        for name, bound in (("quant_min_lower_bound", low), ("quant_max_upper_bound", high)):
            if bound is not None and not least <= bound <= most:
                yield f"{name} of its {part} is {bound}, and {value.dtype} has codes from {least} to {most}"


@error("quant-range-empty", "DTypeWithConstraints(torch.qint8, quant_min_lower_bound=127, quant_max_upper_bound=-127)")
def _quant_range_empty(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """A range whose least code is not below its greatest one is empty."""
    for part, value in constrained(*one.dtype_configs):
        low, high = value.quant_min_lower_bound, value.quant_max_upper_bound
        if low is not None and high is not None and low >= high:
            yield f"its {part} has quant_min_lower_bound {low} and quant_max_upper_bound {high}"


@error("scale-range", "DTypeWithConstraints(torch.qint8, scale_min_lower_bound=-1.0)")
def _scale_range(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """Scales are positive, and the least one is not above the greatest one."""
    for part, value in constrained(*one.dtype_configs):
        low, high = value.scale_min_lower_bound, value.scale_max_upper_bound
        for name, bound in (("scale_min_lower_bound", low), ("scale_max_upper_bound", high)):
            if bound is not None and bound <= 0:
                yield f"{name} of its {part} is {bound}"
        if low is not None and high is not None and low > high:
            yield f"its {part} has scale_min_lower_bound {low} and scale_max_upper_bound {high}"


@error("exact-scale", "DTypeWithConstraints(torch.quint8, scale_exact_match=1 / 256, zero_point_exact_match=300)")
def _exact(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """Exact qparams have a positive scale within the other bounds, and a zero point that is a code."""
    for part, value in constrained(*one.dtype_configs):
        scale, zero_point = value.scale_exact_match, value.zero_point_exact_match
        least, most = RANGES.get(value.dtype, (-torch.inf, torch.inf))  # type: ignore[arg-type]
        if (scale is None) != (zero_point is None):
            missing = "scale_exact_match" if scale is None else "zero_point_exact_match"
            yield f"its {part} has no {missing}"
        if zero_point is not None and not least <= zero_point <= most:
            yield f"zero_point_exact_match of its {part} is {zero_point}, which is no code of {value.dtype}"
        if scale is not None and (scale <= 0 or scale < (value.scale_min_lower_bound or 0)):
            yield f"scale_exact_match of its {part} is {scale}"


@error("constraint-without-codes", "DTypeWithConstraints(torch.float32, quant_min_lower_bound=0)")
def _without_codes(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """Constraints bound codes and scales, which a float dtype does not have; torch ignores them."""
    for part, value in constrained(*one.dtype_configs):
        if not quantized(value.dtype) and value != DTypeWithConstraints(value.dtype):
            yield f"its {part} has constraints, and the dtype {value.dtype}"


@error("dynamic-output", "DTypeConfig(torch.quint8, torch.quint8, torch.qint8, is_dynamic=True)")
def _dynamic_output(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """A dynamically quantized operator returns float."""
    for dtypes in one.dtype_configs:
        if dtypes.is_dynamic and quantized(dtypes.output_dtype):
            yield f"a dynamic dtype config has the output dtype {dtypes.output_dtype}"


@error("dynamic-input", "DTypeConfig(torch.float32, torch.float32, torch.qint8, is_dynamic=True)")
def _dynamic_input(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """Dynamic quantization quantizes the input of an operator when it is executed, to 8-bit integers or float16."""
    for dtypes in one.dtype_configs:
        if dtypes.is_dynamic and dtypes.input_dtype not in DYNAMIC:
            yield f"a dynamic dtype config has the input dtype {dtypes.input_dtype}"


@error("observation-type", 'BackendPatternConfig(nn.ReLU).set_observation_type("shared")')
def _observation_type(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """An observation type is one of ObservationType."""
    if not isinstance(one.entry.observation_type, ObservationType):
        yield f"its observation type is {one.entry.observation_type!r}"
    for count, kind in one.entry._num_tensor_args_to_observation_type.items():
        if not isinstance(kind, ObservationType) or count not in range(3):
            yield f"the observation type with {count!r} tensor arguments is {kind!r}"


@error(
    "shared-observer-other-dtype",
    "set_observation_type(OUTPUT_SHARE_OBSERVER_WITH_INPUT) with DTypeConfig(torch.quint8, torch.qint8)",
)
def _shared_dtype(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """An output that shares the observer of the input has its qparams and dtype."""
    for dtypes in one.dtype_configs if one.entry.observation_type is SHARED else []:
        if dtypes.input_dtype != dtypes.output_dtype:
            yield f"its input has the dtype {dtypes.input_dtype}, its output {dtypes.output_dtype}"


@error("static-dtypes-differ", "BackendPatternConfig(F.gelu) with DTypeConfig(torch.quint8, torch.float16)")
def _static_dtypes(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """A QConfig has one observer of activations, for the input and the output: no QConfig satisfies two dtypes, so the
    pattern stays in float."""
    if one.entry.observation_type in (SHARED, UNOBSERVED):
        return
    for dtypes in one.dtype_configs:
        given, result = dtypes.input_dtype, dtypes.output_dtype
        if not dtypes.is_dynamic and quantized(given) and result is not None and result != given:
            yield f"its input has the dtype {given}, its output {result}"


@error(
    "shared-observer-other-range",
    "BackendPatternConfig(torch.mul).set_observation_type(OUTPUT_SHARE_OBSERVER_WITH_INPUT)",
)
def _shared_range(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """A result that shares the observer of the input has its range: what the operator computes beyond is clipped."""
    if one.entry.observation_type is SHARED and not one.entry._num_tensor_args_to_observation_type:
        for operator in map(pattern_name, one.operators):
            if has_weights(operator) or computation(operator) in OTHER_RANGE or is_batch_norm(operator):
                yield f"the result of {operator} has another range than its input"


@error(
    "shared-observer-exact-output",
    "set_observation_type(OUTPUT_SHARE_OBSERVER_WITH_INPUT) with an output of scale_exact_match=1 / 256",
)
def _shared_exact(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """An output that shares the observer of the input cannot have exact qparams that the input need not have."""
    for dtypes in one.dtype_configs if one.entry.observation_type is SHARED else []:
        output, given = dtypes.output_dtype_with_constraints, dtypes.input_dtype_with_constraints
        if output.scale_exact_match is not None and output.scale_exact_match != given.scale_exact_match:
            yield f"its output has scale_exact_match {output.scale_exact_match}"


@warning(
    "unobserved-activations",
    "set_observation_type(INPUT_OUTPUT_NOT_OBSERVED) with DTypeConfig(torch.quint8, torch.quint8)",
)
def _unobserved(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """Without observers activations are not quantized, so a quantized dtype of the input or output has no effect."""
    for dtypes in one.dtype_configs if one.entry.observation_type is UNOBSERVED else []:
        for part, dtype in (("input", dtypes.input_dtype), ("output", dtypes.output_dtype)):
            if quantized(dtype):
                yield f"its {part} has the dtype {dtype}"
