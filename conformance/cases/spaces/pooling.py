"""Option spaces of pooling, resizing and padding, whose output shares its input's qparams."""

from collections.abc import Callable, Iterator
from typing import Any

from conformance.cases.operators import Operand, Shape, Variant
from conformance.cases.operators.shape import SIGNALS

from .calls import ALL_BY_NAME, BY_POSITION, sources, style
from .elementwise import LENGTHS, OUT
from .space import (
    LAYOUT,
    LEFT_OUT,
    RESULT,
    STRIDED,
    Factor,
    Pick,
    Space,
    batches,
    data,
    factor,
    images_have_formats,
)

DATA = data("full", "positive", "negative")

RETURNS_INDICES = "then the operator returns indices too, which no pattern takes"


def called(
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

    factors = (*options, form, style(**styles), DATA, batches(0, 1, 5), layout, RESULT)
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

    forms: dict[str, Any] = {**by_rank[rank], **({"unbatched": SIGNALS[rank][1:]} if unbatched else {})}
    return factor("form", SIGNALS[rank], covers=("input",), drawn=drawn, **forms)


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


def _pooling_spaces() -> Iterator[tuple[str, Space]]:
    for rank in SIGNALS:
        lengths: dict[str, Any] = {"kernel_size_uneven": _uneven(rank, 3, 2, 1)} if rank > 1 else {}
        kernel = factor("kernel_size", 2, 1, 3, 5 if rank < 3 else 4, drawn=per_dimension(rank, range(1, 6)), **lengths)
        strides: dict[str, Any] = {"stride_uneven": _uneven(rank, 2, 1, 3)} if rank > 1 else {}
        stride = factor("stride", LEFT_OUT, 1, 2, 3, drawn=per_dimension(rank, range(1, 4)), **strides)
        paddings: dict[str, Any] = {"padding_uneven": _uneven(rank, 1, 0, 0)} if rank > 1 else {}
        padding = factor("padding", LEFT_OUT, 1, 2, drawn=per_dimension(rank, range(3)), **paddings)
        ceil = factor("ceil_mode", LEFT_OUT, True)
        counted = factor("count_include_pad", LEFT_OUT, False)
        divisor = [factor("divisor_override", LEFT_OUT, 3, 1)] if rank > 1 else []
        dilation = factor("dilation", LEFT_OUT, 2, drawn=per_dimension(rank, range(1, 4)))
        fits, layout = _fits(rank), LAYOUT if rank > 1 else STRIDED
        formats = (_batched_volumes_have_formats,) if rank == 3 else ()
        for prefix, average, maximum in (("nn", "AvgPool", "MaxPool"), ("F", "avg_pool", "max_pool")):
            yield (
                f"{prefix}.{average}{rank}d",
                called(
                    f"{prefix}.{average}{rank}d",
                    _signal(rank),
                    *(kernel, stride, padding, ceil, counted, *divisor),
                    required=1,
                    constraints=(fits, *formats),
                    layout=layout,
                ),
            )
            order = (kernel, stride, padding, dilation, ceil)
            yield (
                f"{prefix}.{maximum}{rank}d",
                called(
                    f"{prefix}.{maximum}{rank}d",
                    _signal(rank),
                    *order,
                    required=1,
                    constraints=(
                        *formats,
                        fits,
                        _dilated_fits(rank),
                        lambda style, ceil_mode: style != BY_POSITION or ceil_mode is LEFT_OUT,
                    ),
                    left_out={"return_indices": RETURNS_INDICES},
                    layout=layout,
                ),
            )
        sizes: dict[str, Any] = (
            {"output_size_uneven": (1, 2, 3)[:rank], "output_size_none": (None, 2, 2)[:rank]} if rank > 1 else {}
        )
        output = factor("output_size", 1, 2, 3, 7, drawn=per_dimension(rank, range(1, 9)), **sizes)
        for operator in (f"nn.AdaptiveAvgPool{rank}d", f"F.adaptive_avg_pool{rank}d"):
            forms = _signal(rank)
            spread = {"spread": (2, 4, *(1,) * rank)}
            form = Factor("form", {**forms.values, **spread}, forms.drawn, forms.covers)
            yield operator, called(operator, form, output, required=1, layout=layout)


def _resizing_spaces() -> Iterator[tuple[str, Space]]:
    for up, down in (("nn.PixelShuffle", "nn.PixelUnshuffle"), ("F.pixel_shuffle", "F.pixel_unshuffle")):
        factors = 1, 3
        shuffled = factor("form", (2, 36, 3, 4), covers=("input",), unbatched=(36, 3, 4), many_channels=(1, 144, 2, 5))
        yield up, called(up, shuffled, factor("upscale_factor", 2, *factors), required=1)
        unshuffled = factor("form", (2, 2, 6, 12), covers=("input",), unbatched=(2, 6, 12), many_channels=(1, 33, 6, 6))
        yield down, called(down, unshuffled, factor("downscale_factor", 2, *factors), required=1)
    yield "F.interpolate", _interpolate()
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
    yield (
        "F.pad",
        called(
            "F.pad",
            _signal(2, unbatched=False),
            *(pad, modes, value),
            required=1,
            constraints=(
                lambda mode, value: mode is LEFT_OUT or value is LEFT_OUT,
                lambda mode, pad: mode is LEFT_OUT or (len(pad) == 4 and min(pad) >= 0),
            ),
        ),
    )
    paddings = factor("padding", 1, (1, 2, 0, 1), 0, (3, 0, 0, 0))
    yield (
        "nn.ConstantPad2d",
        called("nn.ConstantPad2d", _signal(2), paddings, factor("value", 0.0, 0.5, -1.0), required=2),
    )


RANKS_OF_MODES = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}
"""The rank that interpolation in a mode needs. The other modes take signals, images and volumes."""


def _sampled(pick: Pick) -> Shape:
    """A signal, an image or a volume."""
    drawn = _signal(pick((1, 2, 2, 3)), unbatched=False).drawn
    assert drawn is not None
    shape: Shape = drawn(pick)
    return shape


def _interpolate() -> Space:
    lengths = range(1, 20)
    size = factor(
        "size", LEFT_OUT, (5, 9), (8, 7), (3, 2), (16, 14), drawn=lambda pick: (pick(lengths), pick(lengths)), size_5=5
    )
    scale = factor(
        "scale_factor", 2, 2.0, 0.5, 1.5, LEFT_OUT, scale_uneven=(1.0, 2.0), drawn=[1, 2, 3, 0.5, 1.5, 2.5, 0.75]
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
    images = _signal(2, unbatched=False).values
    ranks = {"spread": (2, 4, 1, 1), "signal": SIGNALS[1], "volume": SIGNALS[3], "flat_volume": (2, 1, 3, 4, 5)}
    form = Factor("form", {**images, **ranks}, _sampled, ("input",))
    return called("F.interpolate", form, size, scale, mode, corners, recomputed, antialias, constraints=constraints)


POOLING = dict([*_pooling_spaces(), *_resizing_spaces()])
