"""Pooling, resizing and padding, whose output shares its input's qparams."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from conformance.configs.spelling import spelled

from .calls import ALL_BY_NAME, BY_POSITION, EACH_BY_NAME, sources, style
from .elementwise import LENGTHS, OUT
from .geometry import SIGNALS
from .networks import images
from .record import BATCHED, Operator, SweepKind, fixed
from .space import (
    BATCH,
    LAYOUT,
    LEFT_OUT,
    RESULT,
    STRIDED,
    Factor,
    Pick,
    Space,
    Values,
    data,
    factor,
    images_have_formats,
)
from .variant import Operand, Shape, Variant

SMALL: dict[int, Shape] = {1: (2, 4, 11), 2: (2, 4, 8, 7), 3: (2, 3, 5, 6, 7)}
"""Shapes by the number of spatial dimensions."""

DATA = data("full", "positive", "negative")

RETURNS_INDICES = "then the operator returns indices too, which no pattern takes"


def space_of(
    operator: str,
    form: Factor,
    *options: Factor,
    required: int = 0,
    constraints: tuple[Callable[..., bool], ...] = (),
    left_out: dict[str, str] | None = None,
    layout: Factor = LAYOUT,
) -> Space:
    """The space of an operator of one tensor that shares its qparams; the first `required` options are passed by position."""
    kind, _, short = operator.partition(".")
    names = [option.name for option in options]
    # `contiguous` takes its option by keyword only
    styles = {"positional": BY_POSITION} if len(options) > required and short != "contiguous" else {}
    if kind != "Tensor":
        styles["keyword"] = ALL_BY_NAME

    def write(form: Any, style: str, **values: Any) -> Variant:
        source = sources(operator, {name: values[name] for name in names}, style, required)
        return Variant("", operands={"x": Operand(form)}, output=form, **source)

    factors = (*options, form, style(**styles), DATA, BATCH, layout, RESULT)
    extra = OUT if kind == "torch" else {}
    return Space(factors, write, (images_have_formats, *constraints), {**extra, **(left_out or {})})


def _signal(rank: int, *, unbatched: bool = True) -> Factor:
    """Shapes of signals, images or volumes: few and many channels, short and long."""
    by_rank: dict[int, dict[str, Any]] = {
        1: {"single_channel": (2, 1, 9), "many_channels": (1, 67, 8), "long": (1, 3, 301)},
        2: {"single_channel": (2, 1, 9, 6), "many_channels": (1, 67, 6, 7), "long": (1, 3, 37, 41)},
        3: {"single_channel": (2, 1, 5, 6, 7), "many_channels": (1, 67, 4, 5, 4), "long": (1, 2, 9, 13, 11)},
    }

    def drawn(pick: Pick) -> Shape:
        spread = pick(range(8)) == 0
        spatial = tuple(1 if spread else pick(range(1, {1: 80, 2: 24, 3: 9}[rank])) for _ in range(rank))
        leading = () if unbatched and pick(range(10)) == 0 else (pick((1, 2, 3)),)
        return (*leading, pick([n for n in LENGTHS if n < 70]), *spatial)

    forms: dict[str, Any] = {**by_rank[rank], **({"unbatched": SMALL[rank][1:]} if unbatched else {})}
    return factor("form", SMALL[rank], covers=("input",), drawn=drawn, **forms)


def each_dimension(value: Any, rank: int) -> Shape:
    """One length for each dimension."""
    return (value,) * rank if isinstance(value, int) else tuple(value)


def _fits(rank: int) -> Callable[..., bool]:
    """Windows fit into the padded input, and padding is at most half of a window."""

    def fits(form: Any, kernel_size: Any, padding: Any) -> bool:
        kernel, pad = each_dimension(kernel_size, rank), each_dimension(0 if padding is LEFT_OUT else padding, rank)
        return all(2 * p <= k <= length + 2 * p for k, p, length in zip(kernel, pad, form[-rank:], strict=True))

    return fits


def _dilated_fits(rank: int) -> Callable[..., bool]:
    def fits(form: Any, kernel_size: Any, padding: Any, dilation: Any) -> bool:
        kernel, pad = each_dimension(kernel_size, rank), each_dimension(0 if padding is LEFT_OUT else padding, rank)
        dilated = each_dimension(1 if dilation is LEFT_OUT else dilation, rank)
        sizes = zip(kernel, pad, dilated, form[-rank:], strict=True)
        return all(d * (k - 1) + 1 <= length + 2 * p for k, p, d, length in sizes)

    return fits


def _batched_volumes_have_formats(form: Any, layout: str) -> bool:
    """Float pooling of an unbatched volume does not take that for a channels-last image."""
    return layout != "channels_last" or len(form) == 5


def _uneven(rank: int, *values: int) -> Shape:
    return values[:rank]


def per_dimension(rank: int, values: range) -> Callable[[Pick], Any]:
    """One length for all dimensions, or one for each."""

    def drawn(pick: Pick) -> Any:
        if rank == 1 or pick((True, False)):
            return pick(values)
        return tuple(pick(values) for _ in range(rank))

    return drawn


def usual(rank: int = 2) -> str:
    """The fixed variants of every operator that shares the qparams of its input, of signals, images or volumes."""
    return f"batch0 batch1 positive negative {'channels_last' if rank > 1 else ''}"


def in_sizes(rank: int) -> dict[str, Any]:
    """Sizes of an operator on signals, images or volumes; those on images in use have about as many elements."""

    def of_image(shape: Shape) -> Values:
        signal, volume = (*shape[:2], math.prod(shape[2:])), (*shape[:2], 4, shape[2] // 2, shape[3] // 2)
        return {"form": {1: signal, 2: shape, 3: volume}[rank]}

    return {"large": {"form": SIGNALS[rank]}, "layers": images(of_image)}


def _pools(rank: int, kind: str, *options: Factor, fits: tuple[Callable[..., bool], ...]) -> Iterator[Operator]:
    """A pool as a module and as a function. A stride that is left out is that of the kernel."""
    layout = LAYOUT if rank > 1 else STRIDED
    formats = (_batched_volumes_have_formats,) if rank == 3 and kind != "AdaptiveAvgPool" else ()
    values = _adaptive(rank) if kind == "AdaptiveAvgPool" else dict(_windows(rank, kind))
    values |= {"unbatched": {"form": SMALL[rank][1:]}, "large": {"form": (2, 4, 12, 12)}}
    values["padded_negative"] = {**values.get("3_stride_2_padding_1", {}), "data": "negative"}
    chosen = " ".join(name for name in values if name[0].isdigit() or name.startswith("None"))
    large = kind == "MaxPool" and rank == 2
    to_two = "" if kind != "AdaptiveAvgPool" else "spread unbatched_2" + " unbatched_flat" * (rank == 3)
    maxima = "padded_negative" if kind == "MaxPool" else ""
    left_out = {"return_indices": RETURNS_INDICES} if kind == "MaxPool" else {}
    counts = BATCHED if rank == 2 else {}
    snake = {"AdaptiveAvgPool": "adaptive_avg_pool", "AvgPool": "avg_pool", "MaxPool": "max_pool"}[kind]
    for operator, before, after in (
        (f"nn.{kind}{rank}d", f"{usual(rank)} keyword {maxima}", ""),
        (f"F.{snake}{rank}d", f"{'3_padding_1_1' if large else ''} {usual(rank)} {maxima}", "keyword"),
    ):
        form = _signal(rank)
        if to_two:
            form = Factor("form", {**form.values, "spread": (2, 4, *(1,) * rank)}, form.drawn, form.covers)
        space = space_of(
            operator, form, *options, required=1, constraints=(*formats, *fits), left_out=left_out, layout=layout
        )
        two = {"output_size": 2} if to_two else {}
        keyword: dict[str, Values] = {"keyword": {"style": EACH_BY_NAME, **two}} if after else {}
        names = f"default {chosen} {before} {after} unbatched {'large' if large else ''} {to_two}"
        points = fixed(space, names, {**values, **keyword, "3_padding_1_1": {"kernel_size": 3, "padding": (1, 1)}})
        of_module = counts if spelled(operator).namespace == "nn" else {}
        yield Operator(operator, space, points, counts=of_module, **in_sizes(rank))


def _adaptive(rank: int) -> dict[str, Values]:
    """Sizes of the output, and pooling to two elements in each dimension: of inputs with one element in each channel, whose
    memory formats look alike, without a batch dimension, and of an unbatched volume that looks like a channels-last image."""
    _, channels, *image = SMALL[rank]
    sizes: list[Any] = [2, 3, *([(*(1,) * (rank - 1), 2), (None, *(2,) * (rank - 1))] if rank > 1 else [])]
    values: dict[str, Values] = {_joined_name(size): {"output_size": size} for size in sizes}
    forms: dict[str, Shape] = {"spread": (2, channels, *(1,) * rank), "unbatched_2": (channels, *image)}
    forms["unbatched_flat"] = (channels, 1, *image[1:])
    return values | {name: {"form": form, "output_size": 2} for name, form in forms.items()}


def _joined_name(size: Any) -> str:
    return "_".join(map(str, size if isinstance(size, tuple) else (size,)))


def _windows(rank: int, kind: str) -> Iterator[tuple[str, Values]]:
    yield "3_stride_2_padding_1", {"kernel_size": 3, "stride": 2, "padding": 1}
    if kind == "AvgPool":
        yield "3_stride_1_ceil_mode_True", {"kernel_size": 3, "stride": 1, "ceil_mode": True}
        yield "3_padding_1_count_include_pad_False", {"kernel_size": 3, "padding": 1, "count_include_pad": False}
        if rank > 1:
            yield "2_divisor_override_3", {"divisor_override": 3}
    else:
        yield "2_stride_1_dilation_2", {"stride": 1, "dilation": 2}
        yield "2_stride_1_padding_1_dilation_2", {"stride": 1, "padding": 1, "dilation": 2}
        yield "2_stride_3", {"stride": 3}
        yield "3_stride_2_ceil_mode_True", {"kernel_size": 3, "stride": 2, "ceil_mode": True}
    yield "1_stride_1", {"kernel_size": 1, "stride": 1}


def _pooling() -> Iterator[Operator]:
    for rank in SMALL:
        lengths: dict[str, Any] = (
            {"kernel_size_uneven": _uneven(rank, 3, 2, 1), "kernel_size_row": _uneven(rank, 1, 3, 1)}
            if rank > 1
            else {}
        )
        kernel = factor("kernel_size", 2, 1, 3, 5 if rank < 3 else 4, drawn=per_dimension(rank, range(1, 6)), **lengths)
        strides: dict[str, Any] = {"stride_uneven": _uneven(rank, 2, 1, 3)} if rank > 1 else {}
        stride = factor("stride", LEFT_OUT, 1, 2, 3, drawn=per_dimension(rank, range(1, 4)), **strides)
        paddings: dict[str, Any] = {"padding_uneven": _uneven(rank, 1, 0, 0)} if rank > 1 else {}
        padding = factor("padding", LEFT_OUT, 1, 2, drawn=per_dimension(rank, range(3)), **paddings)
        ceil = factor("ceil_mode", LEFT_OUT, True)
        counted = factor("count_include_pad", LEFT_OUT, False)
        divisor = [factor("divisor_override", LEFT_OUT, 3, 1)] if rank > 1 else []
        dilation = factor("dilation", LEFT_OUT, 2, drawn=per_dimension(rank, range(1, 4)))
        averaged = kernel, stride, padding, ceil, counted, *divisor
        yield from _pools(rank, "AvgPool", *averaged, fits=(_fits(rank),))
        by_name = lambda style, ceil_mode: style != BY_POSITION or ceil_mode is LEFT_OUT  # noqa: E731
        order = kernel, stride, padding, dilation, ceil
        yield from _pools(rank, "MaxPool", *order, fits=(_fits(rank), _dilated_fits(rank), by_name))
        sizes: dict[str, Any] = (
            {"output_size_uneven": (1, 2, 3)[:rank], "output_size_none": (None, 2, 2)[:rank]} if rank > 1 else {}
        )
        output = factor("output_size", 1, 2, 3, 7, drawn=per_dimension(rank, range(1, 9)), **sizes)
        yield from _pools(rank, "AdaptiveAvgPool", output, fits=())


def _shuffles() -> Iterator[Operator]:
    forms = {
        "up": factor("form", (2, 36, 3, 4), covers=("input",), unbatched=(36, 3, 4), many_channels=(1, 144, 2, 5)),
        "down": factor("form", (2, 2, 6, 12), covers=("input",), unbatched=(2, 6, 12), many_channels=(1, 33, 6, 6)),
    }
    small: dict[str, Shape] = {"up": (2, 8, 3, 4), "down": (2, 2, 6, 4)}
    large: dict[str, Values] = {"up": {"form": (8, 68, 13, 11)}, "down": {"form": (8, 19, 14, 22)}}
    for operator, way in (
        *(("nn.PixelShuffle", "up"), ("nn.PixelUnshuffle", "down")),
        *(("F.pixel_shuffle", "up"), ("F.pixel_unshuffle", "down")),
    ):
        space = space_of(operator, forms[way], factor(f"{way}scale_factor", 2, 1, 3), required=1)
        points = fixed(space, f"default {usual()} keyword", form=small[way])
        yield Operator(operator, space, points, large=large[way], sweep=SweepKind.MOVES)


def _paddings() -> Iterator[Operator]:
    pad = factor(
        "pad",
        (1, 2, 0, 1),
        drawn=lambda pick: tuple(pick(range(-1, 4)) for _ in range(pick((2, 4)))),
        pad_last=(1, 1),
        pad_three=(1, 1, 2, 0, 0, 1),
        pad_cropped=(-1, 2, 1, -1),
        pad_none=(0, 0),
    )
    modes = factor("mode", LEFT_OUT, mode_reflect="reflect", mode_replicate="replicate", mode_circular="circular")
    value = factor("value", LEFT_OUT, 0.5, -1.0)
    # other modes pad the spatial dimensions only, and have no value
    constraints = (
        lambda mode, value: mode is LEFT_OUT or value is LEFT_OUT,
        lambda mode, pad: mode is LEFT_OUT or (len(pad) == 4 and min(pad) >= 0),
    )
    padded: dict[str, Values] = {
        "1_1": {"pad": (1, 1)},
        "1_1_value_0.5": {"pad": (1, 1), "value": 0.5},
        "1_2_0_1_mode_reflect": {"mode": "reflect"},
        "-1_2_1_-1": {"pad": (-1, 2, 1, -1)},
    }
    form = _signal(2, unbatched=False)
    space = space_of("F.pad", form, pad, modes, value, required=1, constraints=constraints)
    yield Operator("F.pad", space, fixed(space, f"default {' '.join(padded)} {usual()} keyword", padded))
    paddings = factor("padding", 1, (1, 2, 0, 1), 0, (3, 0, 0, 0))
    space = space_of("nn.ConstantPad2d", _signal(2), paddings, factor("value", 0.0, 0.5, -1.0), required=2)
    constant = {"1_2_0_1_0.5": {"padding": (1, 2, 0, 1), "value": 0.5}}
    yield Operator("nn.ConstantPad2d", space, fixed(space, f"default 1_2_0_1_0.5 {usual()} keyword", constant))


RANKS_OF_MODES = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}
"""The rank that interpolation in a mode needs. The other modes take signals, images and volumes."""


def _sampled(pick: Pick) -> Shape:
    """A signal, an image or a volume."""
    drawn = _signal(pick((1, 2, 2, 3)), unbatched=False).drawn
    assert drawn is not None
    shape: Shape = drawn(pick)
    return shape


def _interpolate() -> Operator:
    lengths = range(1, 20)
    size = factor(
        "size", LEFT_OUT, (5, 9), (8, 7), (3, 2), (16, 14), drawn=lambda pick: (pick(lengths), pick(lengths)), size_5=5
    )
    scale = factor(
        "scale_factor", 2, 2.0, 0.5, 1.5, LEFT_OUT, 3, 4, scale_uneven=(1.0, 2.0), drawn=[1, 2, 3, 0.5, 1.5, 2.5, 0.75]
    )
    modes: dict[str, Any] = {f"mode_{name}": name for name in ("nearest", "nearest-exact", "area", *RANKS_OF_MODES)}
    mode = factor("mode", LEFT_OUT, **modes)
    corners = factor("align_corners", LEFT_OUT, align_corners=True, align_corners_false=False)
    recomputed = factor("recompute_scale_factor", LEFT_OUT, True)
    antialias = factor("antialias", LEFT_OUT, True)
    constraints = (
        lambda size, scale_factor: (size is LEFT_OUT) != (scale_factor is LEFT_OUT),
        lambda mode, align_corners: align_corners is LEFT_OUT or mode in RANKS_OF_MODES,
        lambda size, recompute_scale_factor: size is LEFT_OUT or recompute_scale_factor is LEFT_OUT,
        lambda mode, antialias: antialias is LEFT_OUT or mode in ("bilinear", "bicubic"),
        lambda mode, scale_factor: mode != "area" or not isinstance(scale_factor, tuple),
        lambda form, mode: len(form) == RANKS_OF_MODES.get(mode, len(form)),
        lambda form, size: len(form) == 4 or not isinstance(size, tuple),
        lambda form, scale_factor: len(form) == 4 or not isinstance(scale_factor, tuple),
        lambda form, scale_factor: not isinstance(scale_factor, float | int) or min(form[2:]) * scale_factor >= 1,
        lambda style, size: style != BY_POSITION or size is not LEFT_OUT,
    )
    ranks = {"spread": (2, 4, 1, 1), "signal": SMALL[1], "volume": SMALL[3], "flat_volume": (2, 1, 3, 4, 5)}
    form = Factor("form", {**_signal(2, unbatched=False).values, **ranks}, _sampled, ("input",))
    options = size, scale, mode, corners, recomputed, antialias
    space = space_of("F.interpolate", form, *options, constraints=constraints)
    values = _interpolated()
    modes_named = " ".join(name for name in values if name.startswith(("scale", "size")))
    shapes = "spread spread_volume signal volume volume_same volume_same_flat signal_linear volume_trilinear"
    points = fixed(space, f"default {modes_named} {usual()} keyword {shapes}", values)
    # most layers in use take the size of their result from another tensor, which the table of layers does not record
    sizes: dict[str, Values] = {
        f"{mode}_to_{side}": {"form": (2, 9, 10, 10), "scale_factor": LEFT_OUT, "size": (side, side), "mode": mode}
        for mode in ("nearest", "bilinear")
        for side in (4, 8, 16)
    }
    return Operator("F.interpolate", space, points, counts={**BATCHED, **sizes})


def _interpolated() -> dict[str, Values]:
    """Modes, and other shapes: with one element in each channel, or with one channel, the memory formats look alike."""
    sized, twice = {"scale_factor": LEFT_OUT}, {"scale_factor": 2.0}
    return {
        "scale_factor_2.0_mode_nearest": {**twice, "mode": "nearest"},
        "size_5_9": {**sized, "size": (5, 9)},
        "size_5_9_mode_bilinear": {**sized, "size": (5, 9), "mode": "bilinear"},
        "scale_factor_2.0_mode_bilinear_align_corners_False": {**twice, "mode": "bilinear", "align_corners": False},
        "scale_factor_2.0_mode_bilinear_align_corners_True": {**twice, "mode": "bilinear", "align_corners": True},
        "scale_factor_2.0_mode_nearest-exact": {**twice, "mode": "nearest-exact"},
        "scale_factor_2.0_mode_bicubic": {**twice, "mode": "bicubic"},
        "size_5_9_mode_area": {**sized, "size": (5, 9), "mode": "area"},
        "scale_factor_2.0_mode_bilinear_antialias_True": {**twice, "mode": "bilinear", "antialias": True},
        "spread_volume": {"form": (2, 4, 1, 1, 1)},
        "volume_same": {"form": SMALL[3], **sized, "size": SMALL[3][2:]},
        "volume_same_flat": {"form": (2, 1, 3, 4, 5), **sized, "size": (3, 4, 5)},
        "signal_linear": {"form": SMALL[1], **twice, "mode": "linear"},
        "volume_trilinear": {"form": SMALL[3], **twice, "mode": "trilinear"},
    }


POOLING = [*_pooling(), *_shuffles(), _interpolate(), *_paddings()]
