"""Features of variants, which decide whether the ledger covers a variant that it does not name.

All variants are described by the same features: options, geometry, ranks, memory formats and data. A drawn or combined
variant is like a fixed one that has no feature which it lacks, and the ledger's entries for such variants cover it.
"""

import math
from collections.abc import Iterator, Mapping
from functools import cache
from operator import le
from typing import Any

from conformance.configs.spelling import EMBEDDINGS, INSTANCE_NORM, LINEAR, TRANSPOSED, spelled

from .operators import OPERATORS, SPACES, Shape, Variant, has_weights
from .operators.expressions import Call, Source, X
from .operators.fused import FUSED, plain_of
from .ranges import bounds, magnitude, range_of
from .runs import Run

CONVOLUTION = ("stride", "padding", "dilation", "groups")
CONV_TRANSPOSE = ("stride", "padding", "output_padding", "groups", "dilation")

DISTINCTIVE = frozenset({"alpha", "divisor_override", "proj_size"})
"""Numeric options that set a variant apart whatever their value."""

SEQUENCES = frozenset({"nn.LSTM", "nn.GRU"})
LONG_SEQUENCE = 16
"""Steps of a sequence from which on the rounding of float32 in each of them adds up to more than a tolerance."""

LONG_SUM = 258
"""The number of squares of codes, of 8 bits each, whose sum float32 has exactly: 2**24 / 255**2."""

MOST_OF_INT8 = 127
"""Elements of a channel up to which torch's kernel for int8 in channels-last format can count them."""

OPERANDS = frozenset({"input", "tensors"})
"""Parameters that take tensors."""


def features(operator: str, variant: Variant, steps: int) -> frozenset[str]:
    """Features of a variant that the default variant of its root operator lacks; activations have `steps` + 1 codes."""
    return frozenset(_features(operator, variant, steps)) - _of_default(operator, steps)


@cache
def _of_default(operator: str, steps: int) -> frozenset[str]:
    """What `_features` yields for the default variant of an operator."""
    return frozenset(_features(operator, OPERATORS[operator][0], steps))


def _features(operator: str, variant: Variant, steps: int) -> Iterator[str]:
    yield from _data(variant, steps)
    yield from _operands(operator, variant)
    yield from _model(variant)
    if not has_weights(operator):
        yield from _options(operator, variant)
        yield from _shapes(operator, variant)
    elif _computes(operator) == LINEAR:
        yield from _linear(operator, variant)
    else:
        yield from _convolution(operator, variant)


def _model(variant: Variant) -> Iterator[str]:
    """Features of the model around the operator, and of the way in which the operator is applied."""
    if variant.applications > 1 or variant.context.applications > 1:
        yield "called_twice"
    if variant.prelude:
        yield "in_network"
    if variant.result != "y":
        yield f"returns {variant.result}"
    if variant.per_channel:
        yield "per_channel"
    if variant.wildcard is not None:
        operand = variant.operands.get("other")
        if variant.wildcard.layer:
            yield "two_layers"
        elif variant.wildcard.expression == "x" or (operand is not None and _formats_look_alike(operand.shape)):
            yield "residual"
        elif operand is None:
            yield "scalar"
        if operand is not None and operand.shape != variant.output:
            yield "broadcast"


def _data(variant: Variant, steps: int) -> Iterator[str]:
    """Signs and magnitude of the data, and the observers that depend on them."""
    row = range_of(variant.data)
    if row.covers == "middle":
        yield "symmetric"
    if variant.saturates:
        yield "saturates"
    low, high, _ = bounds(variant.data, steps)
    if low == 0 or high == 0:
        yield "positive" if low == 0 else "negative"
    if (size := magnitude(row.exponent)) != "usual":
        yield size
    if variant.batch is not None:
        yield f"batch{variant.batch}"


def _formats_look_alike(shape: Shape) -> bool:
    """Whether a contiguous tensor is channels-last too: with one channel, or one element in each channel."""
    return shape[1:2] == (1,) or set(shape[2:]) == {1}


def _operands(operator: str, variant: Variant) -> Iterator[str]:
    """Ranks, memory formats, scales and zero points of the operands."""
    specs = [spec for spec in variant.operands.values() if spec.kind == "activation"]
    layouts = {spec.layout for spec in specs}
    if "channels_last" in layouts:
        yield "channels_last"
    if any(spec.layout == "strided" and set(spec.shape[2:]) != {1} for spec in specs):
        yield "strided"
    if any(spec.data for spec in specs):
        yield "other_zero_point"
    elif len({spec.exponent for spec in specs}) > 1 and variant.wildcard is None:
        yield "other_scale"
    if len({spec.shape for spec in specs}) > 1 and spelled(operator).namespace in ("operator", "torch"):
        yield "operands of different shapes"
    if len({len(spec.shape) for spec in specs}) > 1:
        yield "operands of different ranks"
    if "x" in variant.operands:
        rank = len(variant.operands["x"].shape)
        yield f"rank{rank}"
        if _computes(operator) == LINEAR and rank > 3:
            yield "rank3"


def _options(operator: str, variant: Variant) -> Iterator[str]:
    """Options of an operator without weights: whether they are not the default ones, and those that are not numbers."""
    default = OPERATORS[operator][0]
    if (variant.init, variant.call) != (default.init, default.call):
        yield "options"
    stated = stated_options(operator, variant)
    if stated.keys() & OPERANDS:
        yield "keyword"
    stated = {name: value for name, value in stated.items() if name not in OPERANDS}
    yield from (name for name, value in stated.items() if name in DISTINCTIVE)
    yield from (f"{name}={value!r}" for name, value in stated.items() if not _is_number(value))
    if _is_dilated(stated):
        yield "dilation"
        if stated.get("padding", 0) not in (0, (0, 0), (0, 0, 0)):
            yield "padding with dilation"
    if _computes(operator) == "maxpool" and not variant.init and "stride" not in stated and len(stated) > 1:
        yield "stride_left_out"
    if operator == "F.pad" and min(stated["pad"]) < 0:
        yield "cropping"
    if not variant.init and variant.stated.has_numbers:  # a call takes literal numbers, no module does
        yield "scalar"


def _stated(operator: str, variant: Variant) -> Call:
    """The call that states the options of an operator, or of the layer in a fused module."""
    call: Call = variant.stated.positional[0] if operator in FUSED else variant.stated
    return call


def stated_options(operator: str, variant: Variant) -> dict[str, Any]:
    """The options that a call or the constructor of a module states, by name."""
    call = _stated(operator, variant)
    if call.infix:
        return {}
    if variant.init:
        inputs = variant.keywords.keys() & {"input"}
        return {**_named(operator, call, 0), **dict.fromkeys(inputs, X)}
    tensors = 0 if spelled(operator).namespace == "Tensor" or OPERANDS & call.keywords.keys() else 1
    return _named(operator, call, tensors)


def _named(operator: str, call: Call, tensors: int) -> dict[str, Any]:
    """The arguments of a call by name, without the first `tensors` ones, which are operands."""
    options = [factor.name for factor in SPACES[operator].factors] if operator in SPACES else []
    return {**dict(zip(options, call.positional[tensors:], strict=False)), **call.keywords}


def _is_dilated(stated: dict[str, Any]) -> bool:
    dilation = stated.get("dilation", 1)
    return bool(max(dilation if isinstance(dilation, tuple) else (dilation,)) > 1)


def _is_number(value: Any) -> bool:
    """Whether a value is a number, or a tuple without expressions."""
    if isinstance(value, tuple):
        return not any(isinstance(one, Source) for one in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shapes(operator: str, variant: Variant) -> Iterator[str]:
    """Shapes that kernels of an operator are known to confuse, and options that depend on shapes."""
    shape = variant.operands["x"].shape if "x" in variant.operands else ()
    alike = _formats_look_alike(shape)
    if operator in ("nn.MaxPool2d", "F.max_pool2d") and math.prod(shape[-2:]) > MOST_OF_INT8:
        yield "over_127_elements"
    computes, rank = _computes(operator), spelled(operator).rank
    if computes == "squeeze":
        yield from _squeeze(operator, variant, shape)
    if computes == "adaptiveavgpool" and rank is not None:
        if set(shape[-rank:]) == {1}:
            yield "spread"
        if alike and rank == 3 and len(shape) == 4:
            yield "flat"
    if computes == "interpolate" and len(shape) > 2:
        if set(shape[2:]) == {1}:
            yield "spread"
        if alike and len(shape) == 5:
            yield "flat"
    if computes == "mean" and alike and len(shape) == 4:
        yield "flat"
    if computes == INSTANCE_NORM:
        yield from _instance_norm(variant, shape)
    if operator in SEQUENCES and max(shape) > LONG_SEQUENCE:
        yield "long_sequence"
    if operator == "nn.Softmax":
        dim = stated_options(operator, variant)["dim"]
        if dim % len(shape) == 0:
            yield "over the batch"
        if dim < -1:
            yield "negative dimension"
    if computes in EMBEDDINGS and variant.init and variant.stated.positional[1] % 2:
        yield "odd_width"


def _squeeze(operator: str, variant: Variant, shape: Shape) -> Iterator[str]:
    dim = stated_options(operator, variant).get("dim")
    dims = range(len(shape)) if dim is None else (dim,) if isinstance(dim, int) else dim
    if all(shape[one] != 1 for one in dims):
        yield "nothing_squeezed"


def _instance_norm(variant: Variant, shape: Shape) -> Iterator[str]:
    items = shape[0] if variant.batch is None and shape else variant.batch or 0
    if items > math.prod(shape[2:]):
        yield "many_items"
    if _formats_look_alike(shape):
        yield "flat"
    if math.prod(shape[2:]) > LONG_SUM and (
        _formats_look_alike(shape) or variant.operands["x"].layout == "channels_last"
    ):
        yield "long_sums"


def arguments_of(operator: str, variant: Variant) -> dict[str, Any]:
    """The arguments of a layer that are numbers and options, by name."""
    call, plain = _stated(operator, variant), plain_of(operator)
    if spelled(plain).namespace == "F":
        names = ("input", "weight", "bias", *_options_of(plain))
    else:
        names = ("in_channels", "out_channels", "kernel_size")
    arguments = {**dict(zip(names, call.positional, strict=False)), **call.keywords}
    return {name: value for name, value in arguments.items() if not (value is None or isinstance(value, Source))}


def _computes(operator: str) -> str:
    """What the layer computes that an operator is or holds."""
    return spelled(plain_of(operator)).computes


def _options_of(function: str) -> tuple[str, ...]:
    """The options of a functional convolution after input, weight and bias, in the order of its signature."""
    return CONV_TRANSPOSE if spelled(function).computes == TRANSPOSED else CONVOLUTION


def _no_bias(variant: Variant, arguments: Mapping[str, Any]) -> bool:
    return "bias" not in variant.parameters if variant.parameters else arguments.get("bias") is False


def _linear(operator: str, variant: Variant) -> Iterator[str]:
    arguments = arguments_of(operator, variant)
    if _no_bias(variant, arguments):
        yield "no_bias"
    yield from _style(variant)
    weight = variant.parameters.get("weight")
    channels = weight or (arguments["in_channels"], arguments["out_channels"])
    if min(channels) > 64:
        yield "wide"
    if max(channels) == 1:
        yield "single_feature"
    if all(size % 2 for size in channels):
        yield "odd_features"


def _style(variant: Variant) -> Iterator[str]:
    """How a layer is called: with its input, bias or options by keyword, and which of them are left out."""
    call = variant.call
    assert isinstance(call, Call)
    if call.keywords:
        yield (
            "keyword" if "input" in call.keywords else "keyword_bias" if "bias" in call.keywords else "keyword_options"
        )
    if spelled(call.function).rank is not None:
        options = _options_of(call.function)
        if len(call.positional) + len(call.keywords) - 3 < len(options):
            yield "options_left_out"
        if len(call.positional) < 3 and not call.keywords:
            yield "bias_left_out"
        numbers = [value for value, option in zip(call.positional[3:], options, strict=False) if option != "groups"]
        if any(isinstance(value, int) for value in numbers):
            yield "integers"


def _convolution(operator: str, variant: Variant) -> Iterator[str]:
    """Geometry of a convolution."""
    arguments, plain = arguments_of(operator, variant), plain_of(operator)
    rank, transposed = spelled(plain).rank, spelled(plain).computes == TRANSPOSED
    assert rank is not None

    def lengths(value: Any) -> Shape:
        return (value,) * rank if isinstance(value, int) else tuple(value)

    groups = arguments.get("groups", 1)
    if weight := variant.parameters.get("weight"):
        left, right = (weight[0], weight[1] * groups) if transposed else (weight[1] * groups, weight[0])
        kernel = weight[2:]
    else:
        left, right = arguments["in_channels"], arguments["out_channels"]
        kernel = lengths(arguments["kernel_size"])
    padding = arguments.get("padding", 0)
    paddings = (0,) * rank if isinstance(padding, str) else lengths(padding)
    rows_of_padding = left == groups and not transposed and any(map(le, kernel[:-1], paddings[:-1]))
    padded = paddings[0] > 0 or (padding == "same" and kernel[0] > 1)
    shallow = left == groups and not transposed and rank == 3 and variant.operands["x"].shape[-3] == 1 and padded
    depthwise = left == groups and not transposed and (groups > 1 or rows_of_padding or shallow)
    strided = max(lengths(arguments.get("stride", 1))) > 1
    relevant = {
        "depthwise": depthwise,
        "groups": groups > 1 and not depthwise,
        "pointwise": set(kernel) == {1},
        "stride": strided and not transposed,
        "output_padding": max(lengths(arguments.get("output_padding", 0))) > 0,
        "dilation": max(lengths(arguments.get("dilation", 1))) > 1,
        "unpadded": not strided and max(kernel) > 1 and padding in (0, (0,) * rank),
        "padding_same": isinstance(padding, str),
        "rows_of_padding": rows_of_padding,
        "shallow": shallow,
        "upsampling": transposed and rank == 2 and groups == 1 and not (left % 8 or right % 8) and kernel[0] == 2,
        "wide": left >= 16 and right >= 32,
        "equal_channels": transposed and left == right and groups == 1,
        "cropped": transposed and any(map(le, kernel, paddings)),
        "grayscale": rank == 2 and left == 1,
        "no_bias": _no_bias(variant, arguments),
        "channels_last_to_one": variant.operands["x"].layout == "channels_last" and set(variant.output[2:]) == {1},
        f"padding_{arguments.get('padding_mode')}": "padding_mode" in arguments,
    }
    yield from (name for name, holds in relevant.items() if holds)
    yield from _style(variant)


def features_of(run: Run) -> frozenset[str]:
    """Features of a run's variant."""
    assert run.variant is not None
    return features(run.claim.root, run.variant, run.recipe.steps)
