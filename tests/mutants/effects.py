"""Effects and regions of mutants: which elements of a result change, and to what.

They compute with integers where the result is quantized, because a conversion to float would raise alarms of its own.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from faults.kernels import Call, quantized
from torch import Tensor

from .facts import OUT, PER_TENSOR
from .mutant import Effect, Mutant, Region
from .unseen import unseen

LOW = {torch.quint8: 0, torch.qint8: -128}


def main(result: Any) -> Tensor:
    """The first or only tensor of a kernel's result."""
    first: Tensor = result if isinstance(result, Tensor) else result[0]
    return first


def values_of(x: Tensor) -> Tensor:
    """The codes (int32) of a quantized tensor, or the values of another one."""
    return x.int_repr().int() if x.is_quantized else x


def mask(region: Region, call: Call, before: Tensor | None, values: Tensor) -> Tensor | None:
    """The elements of a region (bool, in the shape of `values`), or None if a result of this shape has no such region.

    `before` are the codes of the first argument if it is quantized.
    """
    if region.kind == "everywhere":
        return torch.ones(values.shape, dtype=torch.bool)
    if region.kind in ("code", "codes from"):
        return values == region.number if region.kind == "code" else values >= region.number
    if region.kind == "input code":
        return before == region.number if before is not None and before.shape == values.shape else None
    if region.kind == "looked up":
        return _looked_up(region, call, values)
    if region.kind in ("element", "lane", "tail"):
        return _in_memory(region, values)
    if not -values.dim() <= region.axis < values.dim():
        return None
    count = values.shape[region.axis]
    first = count - 1 if region.kind == "last" else region.number
    selected = torch.arange(count) >= first if region.kind == "beyond" else torch.arange(count) == first
    shape = [1] * values.dim()
    shape[region.axis] = count
    return selected.reshape(shape).expand(values.shape)


def _in_memory(region: Region, values: Tensor) -> Tensor:
    """Elements by their position in memory."""
    total = values.numel()
    position = torch.empty_like(values, dtype=torch.int64)
    position.as_strided((total,), (1,)).copy_(torch.arange(total))
    if region.kind == "element":
        return position == region.number
    if region.kind == "lane":
        return position % region.width == region.number
    return position >= total - total % region.width


def _looked_up(region: Region, call: Call, values: Tensor) -> Tensor | None:
    """Rows of an embedding that belong to indices from a bound on."""
    indices: Tensor | None = call.arguments.get("indices")
    if indices is None or indices.numel() != math.prod(values.shape[:-1]):
        return None
    return (indices >= region.number).reshape(*values.shape[:-1], 1).expand(values.shape)


# Effects on the values of a result: codes (int32) or floats.


def _stepped(step: int) -> Callable[[Call, Tensor, Tensor, int], Tensor]:
    def changed(call: Call, result: Tensor, values: Tensor, axis: int) -> Tensor:
        if result.is_quantized:
            low = LOW[result.dtype]
            return (values + step).clamp(low, low + 255)
        return values + step * _float_step(call, values)

    return changed


def _float_step(call: Call, values: Tensor) -> float:
    """1 of integers, the step of a dequantized tensor, else the 128th part of the greatest value: a step of an input with 7
    bits."""
    if not values.is_floating_point():
        return 1
    if "dequantize" in call.schema.name and call.x.is_quantized and call.x.qscheme() in PER_TENSOR:
        return float(call.x.q_scale())
    return float(values.abs().max()) / 128 if values.numel() else 0.0


def _wrapped(call: Call, result: Tensor, values: Tensor, axis: int) -> Tensor:
    low = LOW[result.dtype]
    return torch.where(values == low + 255, low, values)


def _confined(low: int, high: int) -> Callable[[Call, Tensor, Tensor, int], Tensor]:
    """Saturation at so many codes above the lowest and below the highest one."""

    def changed(call: Call, result: Tensor, values: Tensor, axis: int) -> Tensor:
        lowest = LOW[result.dtype]
        return values.clamp(lowest + low, lowest + 255 - high)

    return changed


def _neighbour(call: Call, result: Tensor, values: Tensor, axis: int) -> Tensor:
    return values.roll(1, axis) if -values.dim() <= axis < values.dim() else values


def _zero(call: Call, result: Tensor, values: Tensor, axis: int) -> Tensor:
    return torch.full_like(values, result.q_zero_point() if result.is_quantized else 0)


def _sixteen_bits(call: Call, result: Tensor, values: Tensor, axis: int) -> Tensor:
    return values.bfloat16().to(values.dtype)


ON_CODES: dict[str, Callable[[Call, Tensor, Tensor, int], Tensor]] = {
    "one step more": _stepped(1),
    "one step less": _stepped(-1),
    "the highest code wraps around": _wrapped,
    "the lowest code becomes the next": _confined(1, 0),
    "the highest code becomes the one below": _confined(0, 1),
    "zero": _zero,
    "the neighbour's value along dimension {axis}": _neighbour,
}
ON_FLOATS = {
    "one step more": _stepped(1),
    "one step less": _stepped(-1),
    "rounded to bfloat16": _sixteen_bits,
    "zero": _zero,
    "the neighbour's value along dimension {axis}": _neighbour,
}


# Effects on the arguments of a call.


def _relabelled(x: Tensor, zero_point: int) -> Any:
    return quantized(x.int_repr(), x, x.q_scale(), zero_point)


def _input_zero_point(call: Call) -> dict[str, Any]:
    low = LOW[call.x.dtype]
    moved = call.x.q_zero_point() + (1 if call.x.q_zero_point() < low + 255 else -1)
    return {call.names[0]: _relabelled(call.x, moved)}


def _without_zero_point(call: Call) -> dict[str, Any]:
    return {call.names[0]: _relabelled(call.x, 0)}


def _output_zero_point(call: Call) -> dict[str, Any]:
    """Codes that are requantized with another zero point and labelled with the right one."""
    name = next(name for name in call.names if name in ("output_zero_point", "Y_zero_point_i", "zero_point"))
    return {name: call[name] + (1 if call[name] < 100 else -1)}


def _without_second(call: Call) -> dict[str, Any]:
    name = next(name for name in call.names if name in ("qb", "qaccum"))
    other = call[name]
    codes = torch.full_like(other.int_repr(), other.q_zero_point())
    return {name: quantized(codes, other)}


def _without_last(call: Call) -> dict[str, Any]:
    """A list of tensors with the last one replaced by the one before."""
    name = call.names[0]
    parts = list(call[name])
    parts[-1] = parts[-2]
    return {name: parts}


def _packed(call: Call) -> Any:
    return next(name for name, value in call.arguments.items() if isinstance(value, torch.ScriptObject))


def _repacked(
    change: Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor | None]],
) -> Callable[[Call], dict[str, Any]]:
    """Change the weight or the bias of a layer."""

    def changes(call: Call) -> dict[str, Any]:
        name = _packed(call)
        packed = call[name]
        weight, bias = packed.unpack()
        weight, bias = change(weight, bias)
        if not packed._has_method("stride"):
            prepack = (
                torch.ops.quantized.linear_prepack if weight.is_quantized else torch.ops.quantized.linear_prepack_fp16
            )
            return {name: prepack(weight, bias)}
        options = [packed.stride(), packed.padding(), *([packed.output_padding()] if packed.transpose() else [])]
        transposed, rank = "_transpose" * packed.transpose(), weight.dim() - 2
        prepack = getattr(torch.ops.quantized, f"conv{transposed}{rank}d_prepack")
        return {name: prepack(weight, bias, *options, packed.dilation(), packed.groups())}

    return changes


def _other_scales(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Each channel gets the scale of the channel before it."""
    scales, axis = weight.q_per_channel_scales().roll(1), weight.q_per_channel_axis()
    return (
        torch._make_per_channel_quantized_tensor(weight.int_repr(), scales, weight.q_per_channel_zero_points(), axis),
        bias,
    )


def _with_codes(weight: Tensor, codes: Tensor) -> Any:
    if weight.qscheme() in PER_TENSOR:
        return quantized(codes, weight)
    scales, zero_points = weight.q_per_channel_scales(), weight.q_per_channel_zero_points()
    return torch._make_per_channel_quantized_tensor(codes, scales, zero_points, weight.q_per_channel_axis())


def _without_last_input(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The weights of the last input channel are zero; zero points of weights are 0."""
    codes = weight.int_repr().clone() if weight.is_quantized else weight.clone()
    codes[:, -1] = 0
    return _with_codes(weight, codes) if weight.is_quantized else codes, bias


def _shifted_weight(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The last code of each filter is one up."""
    codes = weight.int_repr().int().flatten(1)
    codes[:, -1] = (codes[:, -1] + 1).clamp(max=127)
    return _with_codes(weight, codes.reshape(weight.shape).to(torch.int8)), bias


ON_ARGUMENTS: dict[str, Callable[[Call], dict[str, Any]]] = {
    "the input's zero point is one off": _input_zero_point,
    "the input's zero point is ignored": _without_zero_point,
    "the output's zero point is one off": _output_zero_point,
    "the second operand is dropped": _without_second,
    "the last tensor is the one before it": _without_last,
    "the bias is dropped": _repacked(lambda weight, bias: (weight, None if bias is None else bias * 0)),
    "the neighbour's bias": _repacked(lambda weight, bias: (weight, None if bias is None else bias.roll(1))),
    "the neighbour's weight scale": _repacked(_other_scales),
    "the last input channel is dropped": _repacked(_without_last_input),
    "the last weight of each filter is one step more": _repacked(_shifted_weight),
}
EFFECTS = {**ON_CODES, **ON_FLOATS, **ON_ARGUMENTS}


ACCUMULATORS = ("qaccum",)
"""Arguments that some engines overwrite without declaring it."""


def writes(call: Call) -> bool:
    """Whether the call writes to its first argument."""
    info = call.schema.arguments[0].alias_info
    return info is not None and bool(info.is_write)


def recomputed(effect: Effect, call: Call, result: Tensor) -> Tensor | None:
    """The values of a call with the arguments that an effect changes, or None if it does not apply to the call."""
    if writes(call):
        return None
    try:
        accumulators = {name: call[name].clone() for name in ACCUMULATORS if name in call.arguments}
        again = main(call.original(**{**accumulators, **unseen(ON_ARGUMENTS[effect.kind], call)}))
    except (RuntimeError, StopIteration, IndexError, KeyError, TypeError, ValueError, AttributeError):
        return None
    return values_of(again) if again.shape == result.shape and again.dtype == result.dtype else None


def changed_values(effect: Effect, call: Call, result: Tensor) -> Tensor | None:
    """The values of a result after an effect, before it is confined to a region; None if it does not apply."""
    if effect.kind in ON_ARGUMENTS:
        return recomputed(effect, call, result)
    kinds = ON_CODES if result.is_quantized else ON_FLOATS
    return kinds[effect.kind](call, result, values_of(result), effect.axis) if effect.kind in kinds else None


def mutated(mutant: Mutant, call: Call, result: Any, before: Tensor | None) -> tuple[Any, int]:
    """The result of a mutant for a call that fulfils its conditions, and the number of elements that differ from `result`."""
    first = main(result)
    if not first.numel() or (first.is_quantized and (first.qscheme() not in PER_TENSOR or first.dtype not in LOW)):
        return result, 0
    values = values_of(first)
    selected = mask(mutant.region, call, before, values)
    changed = changed_values(mutant.effect, call, first) if selected is not None and bool(selected.any()) else None
    if selected is None or changed is None:
        return result, 0
    kept, changed = changed, values.clone()  # in the memory format of the result
    changed[selected] = kept[selected]
    count = int((changed != values).sum())
    if not count:
        return result, 0
    again = quantized(changed, first) if first.is_quantized else changed
    if writes(call):
        again = call.x.copy_(again)
    elif OUT in call.arguments:
        again = call[OUT].copy_(again)
    return again if isinstance(result, Tensor) else (again, *result[1:]), count
