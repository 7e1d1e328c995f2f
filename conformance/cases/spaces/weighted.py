"""Option spaces of convolutions and linear layers, as modules and as functions."""

from collections.abc import Callable, Iterator
from typing import Any

from conformance.cases.operators import Operand, Shape, Variant
from conformance.cases.operators.geometry import SPATIAL, Geometry

from .calls import ALL_BY_NAME, BY_NAME, BY_POSITION, applied, function, style
from .elementwise import DEVICE, LENGTHS
from .pooling import each_dimension, per_dimension
from .space import LAYOUT, LEFT_OUT, RESULT, STRIDED, Factor, Pick, Source, Space, batches, data, factor

DATA = data("full", "positive", "negative", "tiny", "huge", "symmetric")
PER_CHANNEL = factor("per_channel", False, covers=(), per_channel=True)
SATURATES = factor("saturates", False, covers=(), saturates=True)
BATCH = batches(0, 1, 5)
INTEGERS, BIAS_BY_NAME = "options as integers", "bias by name"
"""Further styles of a functional convolution, which by position has a tuple for each option."""

SHORT: dict[int, Shape] = {1: (4,), 2: (4, 5), 3: (4, 4, 5)}
LONG: dict[int, Shape] = {1: (97,), 2: (31, 17), 3: (7, 11, 9)}
"""Sizes of a signal, image or volume by its rank."""

PRODUCTS = 2_000_000
"""Most multiplications of a drawn layer."""


def _lengths(rank: int) -> Callable[[Pick], Shape]:
    """Draws lengths of a signal, image or volume."""
    return lambda pick: tuple(pick(range(1, 14)) for _ in range(rank))


def _channels(pick: Pick) -> tuple[int, int]:
    """Channels of the input and of the output."""
    return pick([n for n in LENGTHS if n < 70]), pick([n for n in LENGTHS if n < 70])


def _grouped(channels: tuple[int, int], groups: Any) -> tuple[tuple[int, int], int]:
    """Channels and number of groups; `depthwise` ones have one channel, `multiplied` two of the output."""
    inputs, outputs = channels
    if groups == "depthwise":
        return (inputs, inputs), inputs
    if groups == "multiplied":
        return (inputs, 2 * inputs), inputs
    return ((inputs * groups, outputs * groups) if groups > 2 else channels), groups


def _geometry_factors(rank: int, *, transposed: bool) -> list[Factor]:
    """The factors of a convolution's geometry."""

    def uneven(name: str, *values: int) -> dict[str, Any]:
        return {f"{name}_uneven": values[:rank]} if rank > 1 else {}

    paddings: dict[str, Any] = {} if transposed else {"padding_same": "same", "padding_valid": "valid"}
    return [
        factor(
            "channels",
            (4, 8),
            (1, 1),
            (3, 5),
            (16, 32),
            (8, 16),
            (33, 17),
            (64, 2),
            *([(16, 16), (5, 5)] if transposed else []),
            drawn=_channels,
            covers=("in_channels", "out_channels", "weight"),
        ),
        factor(
            "kernel_size",
            3,
            1,
            2,
            5 if rank < 3 else 4,
            drawn=per_dimension(rank, range(1, 6)),
            covers=("kernel_size", "weight"),
            **uneven("kernel_size", 3, 2, 1),
        ),
        factor("stride", LEFT_OUT, 2, 3, drawn=per_dimension(rank, range(1, 5)), **uneven("stride", 2, 1, 3)),
        factor(
            "padding",
            1,
            2,
            3,
            drawn=per_dimension(rank, range(4)),
            unpadded=LEFT_OUT,
            **paddings,
            **uneven("padding", 0, 2, 1),
        ),
        *([factor("output_padding", LEFT_OUT, 1, **uneven("output_padding", 0, 1, 0))] if transposed else []),
        factor("dilation", LEFT_OUT, 2, 3, drawn=per_dimension(rank, range(1, 4)), **uneven("dilation", 1, 2, 1)),
        factor(
            "groups",
            LEFT_OUT,
            2,
            drawn=[LEFT_OUT, 2, 3, 4, 8, "depthwise", "multiplied"],
            depthwise="depthwise",
            multiplied="multiplied",
        ),
        factor("bias", LEFT_OUT, False),
        factor("spatial", SPATIAL[rank], covers=(), drawn=_lengths(rank), short=SHORT[rank], long=LONG[rank]),
    ]


def _geometry(rank: int, *, transposed: bool) -> Callable[..., Geometry]:
    """The geometry of a convolution, from the values of its factors."""

    def geometry(channels: Any, kernel_size: Any, spatial: Any, groups: Any, **options: Any) -> Geometry:
        grouped, count = _grouped(channels, 1 if groups is LEFT_OUT else groups)
        order = ("stride", "padding", "output_padding", "dilation", "groups", "bias", "padding_mode")
        stated = {**options, "groups": LEFT_OUT if groups is LEFT_OUT else count}
        chosen = {name: stated[name] for name in order if name in stated and stated[name] is not LEFT_OUT}
        return Geometry(rank, grouped, kernel_size, transposed=transposed, spatial=spatial, **chosen)

    return geometry


def _divides(channels: Any, groups: Any) -> bool:
    return groups != 2 or all(n % 2 == 0 for n in channels)


def _fits(rank: int, *, transposed: bool) -> Callable[..., bool]:
    """The kernel fits into the padded input, and the output is not empty."""

    def fits(spatial: Any, kernel_size: Any, padding: Any, dilation: Any) -> bool:
        if isinstance(padding, str):
            return padding == "same" or fits(spatial, kernel_size, 0, dilation)
        kernel, pad = each_dimension(kernel_size, rank), each_dimension(0 if padding is LEFT_OUT else padding, rank)
        dilated = each_dimension(1 if dilation is LEFT_OUT else dilation, rank)
        sizes = zip(kernel, pad, dilated, spatial, strict=True)
        if transposed:
            return all(length + d * (k - 1) - 2 * p > 0 for k, p, d, length in sizes)
        return all(d * (k - 1) + 1 <= length + 2 * p for k, p, d, length in sizes)

    return fits


def _same_has_no_stride(padding: Any, stride: Any) -> bool:
    return padding != "same" or stride in (LEFT_OUT, 1)


def _smaller(rank: int) -> Callable[..., bool]:
    """The output padding is smaller than the stride or the dilation, in each dimension."""

    def smaller(output_padding: Any, stride: Any, dilation: Any) -> bool:
        values = [each_dimension(1 if one is LEFT_OUT else one, rank) for one in (stride, dilation)]
        extra = each_dimension(0 if output_padding is LEFT_OUT else output_padding, rank)
        return all(e < max(pair) or e == 0 for e, *pair in zip(extra, *values, strict=True))

    return smaller


def _padding_repeats(padding_mode: Any, padding: Any, spatial: Any, kernel_size: Any, dilation: Any) -> bool:
    """Padding that repeats values of the input is narrower than the input."""
    if padding_mode is LEFT_OUT or padding is LEFT_OUT or padding == "valid":
        return True
    if padding == "same":
        steps = each_dimension(1 if dilation is LEFT_OUT else dilation, len(spatial))
        kernel = each_dimension(kernel_size, len(spatial))
        return all(d * (k - 1) < length for k, d, length in zip(kernel, steps, spatial, strict=True))
    return all(p < length for p, length in zip(each_dimension(padding, len(spatial)), spatial, strict=True))


def _affordable(channels: Any, kernel_size: Any, spatial: Any) -> bool:
    """The layer has not too many multiplications: some classes of sizes occur without each other only."""
    products = channels[0] * channels[1]
    for k, length in zip(each_dimension(kernel_size, len(spatial)), spatial, strict=True):
        products *= k * length
    return bool(products <= PRODUCTS)


def _module(rank: int, *, transposed: bool) -> Space:
    factors = _geometry_factors(rank, transposed=transposed)
    geometry = _geometry(rank, transposed=transposed)

    def write(form: str, style: str, **values: Any) -> Variant:
        made = geometry(**values)
        shape: Shape = (2, made.channels[0], *made.spatial)
        operand = Operand(shape if form == "batched" else shape[1:])
        output = made.output if form == "batched" else ()
        return Variant("", applied(style), {"x": operand}, made.module, output=output)

    modes: dict[str, Any] = {f"padding_mode_{mode}": mode for mode in ("reflect", "replicate", "circular")}
    padded = () if transposed else (factor("padding_mode", LEFT_OUT, **modes),)
    left_out = dict(DEVICE)
    if transposed:
        left_out["padding_mode"] = "only zeros are supported"
    factors = [*factors, *padded, *_around(rank, transposed=transposed), style(keyword=ALL_BY_NAME)]
    constraints = [*_constraints(rank, transposed=transposed), *([] if transposed else [_padding_repeats])]
    return Space(tuple(factors), write, tuple(constraints), left_out)


def _around(rank: int, *, transposed: bool) -> list[Factor]:
    """The factors around a convolution: its operand, data and observers."""
    form = factor("form", "batched", covers=("input",), unbatched="unbatched")
    per_channel = [] if transposed else [PER_CHANNEL]
    return [form, *per_channel, SATURATES, DATA, BATCH, LAYOUT if rank > 1 else STRIDED, RESULT]


def _constraints(rank: int, *, transposed: bool) -> list[Callable[..., bool]]:
    def has_format(form: str, layout: str) -> bool:
        return layout != "channels_last" or (rank > 1 and (form == "batched" or rank == 3))

    def batched(form: str, batch: Any) -> bool:
        return form == "batched" or batch is None

    def range_is_full(saturates: bool, data: str) -> bool:
        return not saturates or data in ("full", "symmetric")

    constraints: list[Callable[..., bool]] = [_divides, _fits(rank, transposed=transposed), _affordable]
    constraints += [has_format, batched, range_is_full]
    return [*constraints, _smaller(rank)] if transposed else [*constraints, _same_has_no_stride]


def _functional(rank: int, *, transposed: bool) -> Space:
    factors = _geometry_factors(rank, transposed=transposed)
    geometry = _geometry(rank, transposed=transposed)
    name = f"F.conv_transpose{rank}d" if transposed else f"F.conv{rank}d"
    order = ("stride", "padding", *(["output_padding", "groups", "dilation"] if transposed else ["dilation", "groups"]))
    defaults = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}

    def write(form: str, style: str, **values: Any) -> Variant:
        made = geometry(**values)
        shape: Shape = (2, made.channels[0], *made.spatial)
        parameters = made.parameters
        bias = Source("self.bias") if "bias" in parameters else None if style in (BY_POSITION, INTEGERS) else LEFT_OUT
        options = {one: made.options.get(one, LEFT_OUT) for one in order}
        if style in (BY_POSITION, INTEGERS):
            options = {one: defaults[one] if value is LEFT_OUT else value for one, value in options.items()}
        if style == BY_POSITION:
            whole = ("groups",) if not isinstance(options["padding"], str) else ("groups", "padding")
            options = {one: value if one in whole else each_dimension(value, rank) for one, value in options.items()}
        tensors = {"input": "x", "weight": "self.weight"}
        required = 0 if style == BIAS_BY_NAME else int(bias is not LEFT_OUT)
        by = BY_POSITION if style == INTEGERS else style
        call = function(name, tensors, {"bias": bias, **options}, by, required)
        operand = Operand(shape if form == "batched" else shape[1:])
        return Variant("", call, {"x": operand}, parameters=parameters, output=made.output if form == "batched" else ())

    styles = style(
        BY_POSITION, integers=INTEGERS, keyword_options=BY_NAME, keyword_bias=BIAS_BY_NAME, keyword=ALL_BY_NAME
    )
    factors = [*factors, *_around(rank, transposed=transposed), styles]
    return Space(tuple(factors), write, tuple(_constraints(rank, transposed=transposed)))


FEATURES = factor(
    "features",
    (16, 8),
    (1, 1),
    (3, 5),
    (7, 33),
    (64, 17),
    (128, 96),
    (257, 4),
    (4, 257),
    drawn=_channels,
    covers=("in_features", "out_features", "weight"),
)
LEADING = factor(
    "leading",
    (4,),
    covers=("input",),
    rank3=(2, 5),
    rank4=(2, 3, 2),
    unbatched=(),
    single_row=(1,),
    rows_33=(33,),
    rows_129=(129,),
    drawn=lambda pick: tuple(pick((1, 2, 3, 5, 8, 17)) for _ in range(pick((0, 1, 1, 1, 2, 3)))),
)


def _linear(*, functional: bool) -> Space:
    def write(features: Any, leading: Any, bias: Any, style: str) -> Variant:
        inputs, outputs = features
        shape, output = (*leading, inputs), (*leading, outputs)
        if not functional:
            init = f"nn.Linear({inputs}, {outputs}{'' if bias is LEFT_OUT else ', bias=False'})"
            return Variant("", applied(style), {"x": Operand(shape)}, init, output=output)
        parameters = {"weight": (outputs, inputs)} | ({"bias": (outputs,)} if bias is LEFT_OUT else {})
        value = Source("self.bias") if bias is LEFT_OUT else LEFT_OUT
        call = function("F.linear", {"input": "x", "weight": "self.weight"}, {"bias": value}, style)
        return Variant("", call, {"x": Operand(shape)}, parameters=parameters, output=output)

    styles = style(BY_POSITION, keyword_bias=BY_NAME, keyword=ALL_BY_NAME) if functional else style(keyword=ALL_BY_NAME)
    constraints: tuple[Callable[..., bool], ...] = (
        lambda leading, batch: bool(leading) or batch is None,
        lambda saturates, data: not saturates or data in ("full", "symmetric"),
    )
    factors = (FEATURES, LEADING, factor("bias", LEFT_OUT, False), PER_CHANNEL, SATURATES, DATA, BATCH, STRIDED, RESULT)
    return Space((*factors, styles), write, constraints, {} if functional else DEVICE)


def _spaces() -> Iterator[tuple[str, Space]]:
    for rank in SPATIAL:
        yield f"nn.Conv{rank}d", _module(rank, transposed=False)
        yield f"F.conv{rank}d", _functional(rank, transposed=False)
        yield f"nn.ConvTranspose{rank}d", _module(rank, transposed=True)
        yield f"F.conv_transpose{rank}d", _functional(rank, transposed=True)
    yield "nn.Linear", _linear(functional=False)
    yield "F.linear", _linear(functional=True)


WEIGHTED = dict(_spaces())
