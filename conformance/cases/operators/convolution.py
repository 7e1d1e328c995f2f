"""Convolutions, as modules and as functions."""

from collections.abc import Callable
from typing import Any

from .calls import ALL_BY_NAME, BY_NAME, BY_POSITION, applied, function, style
from .elementwise import DEVICE, LENGTHS
from .expressions import BIAS, WEIGHT, X
from .geometry import SIGNALS, SPATIAL, UNBATCHED, Geometry
from .networks import convolutions
from .pooling import each_dimension, per_dimension
from .record import BATCH as LARGE_BATCH
from .record import CHANNELS, SWEPT_SIGNALS, WEIGHTS_SWEPT, Operator, SweepKind, fixed
from .space import BATCH, LAYOUT, LEFT_OUT, RESULT, STRIDED, TWICE, Factor, Pick, Space, Values, data, factor
from .variant import Operand, Shape, Variant

DATA = data("full", "positive", "negative", "tiny", "huge", "symmetric")
PER_CHANNEL = factor("per_channel", False, covers=(), per_channel=True)
SATURATES = factor("saturates", False, covers=(), saturates=True)
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


def drawn_channels(pick: Pick) -> tuple[int, int]:
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

    def uneven(name: str, *values: int, what: str = "uneven") -> dict[str, Any]:
        return {f"{name}_{what}": values[:rank]} if rank > 1 else {}

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
            drawn=drawn_channels,
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
            **uneven("kernel_size", 1, 3, 1, what="row"),
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
            9,
            drawn=[LEFT_OUT, 2, 3, 4, 8, "depthwise", "multiplied"],
            depthwise="depthwise",
            multiplied="multiplied",
        ),
        factor("bias", LEFT_OUT, False),
        factor("spatial", SPATIAL[rank], covers=(), drawn=_lengths(rank), short=SHORT[rank], long=LONG[rank]),
    ]


def _geometry(rank: int, *, transposed: bool) -> Callable[..., Geometry]:
    """The geometry of a convolution, from the values of its factors."""

    def geometry(
        channels: Any, kernel_size: Any, spatial: Any, groups: Any, items: int = 2, **options: Any
    ) -> Geometry:
        grouped, count = _grouped(channels, 1 if groups is LEFT_OUT else groups)
        order = ("stride", "padding", "output_padding", "dilation", "groups", "bias", "padding_mode")
        stated = {**options, "groups": LEFT_OUT if groups is LEFT_OUT else count}
        chosen = {name: stated[name] for name in order if name in stated and stated[name] is not LEFT_OUT}
        return Geometry(rank, grouped, kernel_size, transposed=transposed, spatial=spatial, items=items, **chosen)

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
        shape: Shape = (made.items, made.channels[0], *made.spatial)
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
        shape: Shape = (made.items, made.channels[0], *made.spatial)
        parameters = made.parameters
        bias = BIAS if "bias" in parameters else None if style in (BY_POSITION, INTEGERS) else LEFT_OUT
        options = {one: made.options.get(one, LEFT_OUT) for one in order}
        if style in (BY_POSITION, INTEGERS):
            options = {one: defaults[one] if value is LEFT_OUT else value for one, value in options.items()}
        if style == BY_POSITION:
            whole = ("groups",) if not isinstance(options["padding"], str) else ("groups", "padding")
            options = {one: value if one in whole else each_dimension(value, rank) for one, value in options.items()}
        tensors = {"input": X, "weight": WEIGHT}
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


DEFAULTS = frozenset({"default", "no_bias", "batch0", "saturates", "symmetric", "per_channel"})
"""The fixed variants that longer patterns have of every layer."""


def _geometries(rank: int) -> dict[str, Values]:
    """Values of a convolution's geometry, by the name of the fixed variant."""
    values: dict[str, Values] = {
        "no_bias": {"bias": False},
        "groups": {"groups": 2},
        "stride": {"stride": 2, "padding": LEFT_OUT},
        "dilation": {"padding": 2, "dilation": 2},
        "depthwise": {"channels": (8, 8), "groups": "depthwise"},
        "pointwise": {"channels": (5, 3), "kernel_size": 1, "padding": LEFT_OUT},
        "unequal": {"channels": (3, 5), "kernel_size": 2, "padding": LEFT_OUT},
        "wide": {"channels": (16, 32)},
    }
    if rank > 1:
        kernel, stride, padding = ((3, 5), (2, 1), (0, 2)) if rank == 2 else ((1, 3, 2), (1, 2, 1), (0, 1, 2))
        values["asymmetric"] = {"channels": (4, 6), "kernel_size": kernel, "stride": stride, "padding": padding}
        values["rows_of_padding"] = {  # rows of the output that are computed from padding alone
            "channels": (16, 16),
            "kernel_size": (*(1,) * (rank - 1), 2),
            "padding": (1, *(0,) * (rank - 1)),
            "groups": "depthwise",
            "spatial": (2, 4, 3)[-rank:],
        }
    if rank == 2:
        values["grayscale"] = {"channels": (1, 8)}
    if rank == 3:
        values["shallow"] = {"groups": "multiplied", "spatial": (1, 6, 4)}
    return values | {"padding_same": {"padding": "same"}}


def _transposed_geometries(rank: int) -> dict[str, Values]:
    small = {"spatial": (5, 3, 2)} if rank == 3 else {}
    values: dict[str, Values] = {
        "no_bias": {"bias": False},
        "stride": {"stride": 2, "output_padding": 1, **small},
        "groups": {"groups": 2},
        "dilation": {"padding": 2, "dilation": 2},
        "depthwise": {"channels": (8, 8), "groups": "depthwise"},
        "unequal": {"channels": (3, 5), "kernel_size": 2, "padding": LEFT_OUT},
        "wide": {"channels": (16, 32)},
    }
    if rank == 2:
        doubled = {"channels": (8, 8), "kernel_size": 2, "stride": 2, "padding": LEFT_OUT, "spatial": (4, 3)}
        values |= {"upsampling": doubled, "grayscale": {"channels": (1, 8)}}
        # the padding of a transposed convolution is cut from its result: here as much as an element of the input contributes
        values["cropped"] = {"padding": 3}
    return values


def _convolution(rank: int, *, transposed: bool, functional: bool) -> Operator:
    geometries = _transposed_geometries(rank) if transposed else _geometries(rank)
    kind = "F.conv_transpose" if transposed else "F.conv"
    name = f"{kind}{rank}d" if functional else f"nn.Conv{'Transpose' * transposed}{rank}d"
    space = (_functional if functional else _module)(rank, transposed=transposed)
    values = {**geometries, **_further(rank, transposed=transposed, functional=functional)}
    ends = "saturates symmetric batch0 batch1 batch5 unbatched positive negative tiny huge"
    values["unbatched"] = {"form": "unbatched", "spatial": UNBATCHED[rank]}
    first = [*geometries, *(one for one in values if one not in geometries and one != "unbatched")]
    names = ["default", *(one for one in first if one not in ("called_twice", "keyword") or functional)]
    if not functional:
        ends += " keyword called_twice"
        values["called_twice"] = {"channels": (4, 4), "style": TWICE}
    core = DEFAULTS | {"groups", "padding_same"} | ({"stride", "depthwise"} if transposed else set())
    channels, kernel = (35, SIGNALS[rank][1]), {"kernel_size": 1, "padding": 0, "items": 1}
    sweeps = {
        one: {"channels": (inputs, CHANNELS), "spatial": SWEPT_SIGNALS[rank], **kernel}
        for inputs, one in enumerate(WEIGHTS_SWEPT, 1)
    }
    return Operator(
        name,
        space,
        fixed(space, f"{' '.join(names)} {ends}", values),
        core,
        large={"channels": channels, "items": SIGNALS[rank][0], "spatial": SIGNALS[rank][2:]},
        layers=convolutions(rank, transposed=transposed),
        counts=_batches() if name == "nn.Conv2d" else {},
        sweep=SweepKind.WEIGHTS,
        sweeps=sweeps,
    )


def _batches() -> dict[str, Values]:
    """Pointwise convolutions of many small images."""
    pointwise = {"channels": (19, 21), "kernel_size": 1, "padding": 0, "spatial": (3, 5)}
    return {f"batch_{items}": {**pointwise, "items": items} for items in (33, 129, LARGE_BATCH)}


def _further(rank: int, *, transposed: bool, functional: bool) -> dict[str, Values]:
    """Values beside a convolution's geometry, by the name of the fixed variant."""
    laid = {"layout": "channels_last"}
    values: dict[str, Values] = {}
    if not transposed:
        values["per_channel"] = {"per_channel": True}
        if rank > 1 and not functional:
            values["channels_last"] = laid
        if rank == 2 and not functional:
            values["channels_last_batch0"] = {**laid, "batch": 0}
        if rank == 2:
            # each channel becomes one element: the result lies in memory as a contiguous one does
            values["channels_last_to_one"] = {"kernel_size": 4, "spatial": (2, 2), **laid}
        if not functional:
            values["depthwise_per_channel"] = {"channels": (8, 8), "groups": "depthwise", "per_channel": True}
            values |= {f"padding_{mode}": {"padding_mode": mode} for mode in ("reflect", "replicate", "circular")}
    if functional:
        every = {"stride": 1, "dilation": 1, "groups": 1, **({"output_padding": 0} if transposed else {})}
        unpadded = {"padding": LEFT_OUT, "style": BY_NAME}
        values |= {
            "optionals_left_out": {"bias": False, **unpadded},
            "options_left_out": unpadded,
            "integers": {"style": INTEGERS},
            "keyword_options": {**every, "style": BY_NAME},
            "keyword_bias": {**every, "style": BIAS_BY_NAME},
            "keyword": {**every, "style": ALL_BY_NAME},
        }
    return values


CONVOLUTIONS = [
    _convolution(rank, transposed=transposed, functional=functional)
    for rank in SPATIAL
    for transposed in (False, True)
    for functional in (False, True)
]
