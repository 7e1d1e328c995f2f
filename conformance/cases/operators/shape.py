"""Operators whose output shares its input's qparams: pooling, resizing, reductions, views, concatenation."""

from collections.abc import Iterator

from .elementwise import IMAGE, _label, in_network
from .variant import Operand, Shape, Variant, batch_variants, data_variants, layout_variants, operands

SIGNALS: dict[int, Shape] = {1: (2, 4, 11), 2: (2, 4, 8, 7), 3: (2, 3, 5, 6, 7)}


def _named(option: str) -> str:
    return _label(option) or "no_arguments"


def _each(call: str, options: list[str], shape: Shape, *, init: str = "") -> list[Variant]:
    """One variant for each text of options, which replaces `{}` in `call` and `init`; the first is the default."""
    default = Variant(
        "default", call.format(options[0]), operands(shape), init.format(options[0]), core=True, output=shape
    )
    rest = [
        default.named(_named(option), call=call.format(option), init=init.format(option), core=False)
        for option in options[1:]
    ]
    return [
        default,
        *rest,
        *batch_variants(default, 0, 1),
        *data_variants(default, "positive", "negative"),
        *layout_variants(default),
    ]


def _module(module: str, options: list[str], shape: Shape) -> list[Variant]:
    variants = _each("self.op(x)", options, shape, init=f"{module}({{}})")
    return [*variants, variants[0].named("keyword", call="self.op(input=x)", core=False)]


def _function(function: str, options: list[str], shape: Shape, keyword: str = "") -> list[Variant]:
    """`keyword` is the first option as a keyword argument, if `options` has it as a positional one."""
    variants = _each(f"{function}(x, {{}})", options, shape)
    return [*variants, variants[0].named("keyword", call=f"{function}(input=x, {keyword or options[0]})", core=False)]


def _padded_below_zero(name: str, variants: list[Variant]) -> list[Variant]:
    """Padded maxima of negative data, which show the value of the padding."""
    padded = [variant for variant in variants if variant.name.endswith("padding_1")] if name == "MaxPool" else []
    return [variant.named("padded_negative", data="negative") for variant in padded]


def _large(rank: int, name: str, base: Variant) -> list[Variant]:
    """Images of which a channel has more elements than int8 has positive codes."""
    large = name == "MaxPool" and rank == 2
    return [base.named("large", operands=operands((2, 4, 12, 12)), core=False)] if large else []


def _to_two(base: Variant, **to: str) -> list[Variant]:
    """Adaptive pooling to two elements in each dimension.

    The inputs have one element in each channel, whose memory formats look alike, or no batch dimension, or are an unbatched
    volume that looks like a channels-last image.
    """
    _, channels, *image = base.operands["x"].shape
    shapes: dict[str, Shape] = {"spread": (2, channels, *(1 for _ in image)), "unbatched_2": (channels, *image)}
    if len(image) == 3:
        shapes["unbatched_flat"] = (channels, 1, *image[1:])
    return [base.named(name, operands=operands(shape), core=False, **to) for name, shape in shapes.items()]


def _pooling_table() -> Iterator[tuple[str, list[Variant]]]:
    for rank, shape in SIGNALS.items():
        adaptive = ["1", "2", "3"] + (
            [] if rank == 1 else [str((1,) * (rank - 1) + (2,)), str((None,) + (2,) * (rank - 1))]
        )
        image = shape[1:]
        for name, options in (
            ("AdaptiveAvgPool", adaptive),
            (
                "AvgPool",
                [
                    "2",
                    "3, stride=2, padding=1",
                    "3, stride=1, ceil_mode=True",
                    "3, padding=1, count_include_pad=False",
                    *(["2, divisor_override=3"] if rank > 1 else []),
                    "1, stride=1",
                ],
            ),
            (
                "MaxPool",
                [
                    "2",
                    "3, stride=2, padding=1",
                    "2, stride=1, dilation=2",
                    "2, stride=1, padding=1, dilation=2",
                    "2, stride=3",
                    "3, stride=2, ceil_mode=True",
                    "1, stride=1",
                ],
            ),
        ):
            variants = _module(f"nn.{name}{rank}d", options, shape)
            default = variants[0]
            yield (
                f"nn.{name}{rank}d",
                [
                    *variants,
                    *_padded_below_zero(name, variants),
                    default.named("unbatched", operands=operands(image), core=False),
                    *_large(rank, name, default),
                    *(_to_two(default, init=f"nn.{name}{rank}d(2)") if name.startswith("Adaptive") else []),
                ],
            )
            snake = {"AdaptiveAvgPool": "adaptive_avg_pool", "AvgPool": "avg_pool", "MaxPool": "max_pool"}[name]
            # a stride that is left out is that of the kernel
            further = ["3, padding=(1, 1)"] if name == "MaxPool" and rank == 2 else []
            functional = _each(f"F.{snake}{rank}d(x, {{}})", [*options, *further], shape)
            parameter = {"AdaptiveAvgPool": "output_size", "AvgPool": "kernel_size", "MaxPool": "kernel_size"}[name]
            yield (
                f"F.{snake}{rank}d",
                [
                    *functional,
                    *_padded_below_zero(name, functional),
                    functional[0].named("keyword", call=f"F.{snake}{rank}d(x, {parameter}=2)", core=False),
                    functional[0].named("unbatched", operands=operands(image), core=False),
                    *_large(rank, name, functional[0]),
                    *(_to_two(functional[0], call=f"F.{snake}{rank}d(x, 2)") if name.startswith("Adaptive") else []),
                ],
            )


def _resizing_table() -> Iterator[tuple[str, list[Variant]]]:
    shuffled, unshuffled = (2, 8, 3, 4), (2, 2, 6, 4)
    yield "nn.PixelShuffle", _module("nn.PixelShuffle", ["2"], shuffled)
    yield "nn.PixelUnshuffle", _module("nn.PixelUnshuffle", ["2"], unshuffled)
    yield "F.pixel_shuffle", _function("F.pixel_shuffle", ["2"], shuffled, "upscale_factor=2")
    yield "F.pixel_unshuffle", _function("F.pixel_unshuffle", ["2"], unshuffled, "downscale_factor=2")
    modes = [
        "scale_factor=2",
        "scale_factor=2.0, mode='nearest'",
        "size=(5, 9)",
        "size=(5, 9), mode='bilinear'",
        "scale_factor=2.0, mode='bilinear', align_corners=False",
        "scale_factor=2.0, mode='bilinear', align_corners=True",
        "scale_factor=2.0, mode='nearest-exact'",
        "scale_factor=2.0, mode='bicubic'",
        "size=(5, 9), mode='area'",
        "scale_factor=2.0, mode='bilinear', antialias=True",
    ]
    images = _function("F.interpolate", modes, SIGNALS[2])
    other_ranks = [
        # with one element in each channel the memory formats look alike
        images[0].named("spread", operands=operands((2, 4, 1, 1)), core=False),
        images[0].named("spread_volume", operands=operands((2, 4, 1, 1, 1)), core=False),
        images[0].named("signal", operands=operands(SIGNALS[1]), core=False),
        images[0].named("volume", operands=operands(SIGNALS[3]), core=False),
        images[0].named(
            "volume_same", operands=operands(SIGNALS[3]), core=False, call=f"F.interpolate(x, size={SIGNALS[3][2:]})"
        ),
        # with one channel the memory formats look alike too
        images[0].named(
            "volume_same_flat", operands=operands((2, 1, 3, 4, 5)), core=False, call="F.interpolate(x, size=(3, 4, 5))"
        ),
        images[0].named(
            "signal_linear",
            operands=operands(SIGNALS[1]),
            core=False,
            call="F.interpolate(x, scale_factor=2.0, mode='linear')",
        ),
        images[0].named(
            "volume_trilinear",
            operands=operands(SIGNALS[3]),
            core=False,
            call="F.interpolate(x, scale_factor=2.0, mode='trilinear')",
        ),
    ]
    yield "F.interpolate", [*images, *other_ranks]
    pads = ["(1, 2, 0, 1)", "(1, 1)", "(1, 1), value=0.5", "(1, 2, 0, 1), mode='reflect'", "(-1, 2, 1, -1)"]
    yield "F.pad", _function("F.pad", pads, SIGNALS[2], "pad=(1, 2, 0, 1)")
    yield "nn.ConstantPad2d", _module("nn.ConstantPad2d", ["1, 0.0", "(1, 2, 0, 1), 0.5"], SIGNALS[2])


def _laid(means: list[Variant]) -> list[Variant]:
    """`means`, further ones in channels-last memory format, and one of an image with a single element in each channel.

    In channels-last format the last dimension is not the innermost one in memory. The memory format of an image with a
    single element in each channel is ambiguous.
    """
    reduced = [mean for mean in means if mean.name in ("-1", "dim_1_2_3", "no_arguments")]
    laid = [variant for mean in reduced for variant in layout_variants(mean, f"{mean.name}_channels_last")]
    spread = means[0].named("spread_strided", operands={"x": Operand((2, 4, 1, 1), layout="strided")}, core=False)
    return [*means, *laid, spread]


BY_KEYWORD = {
    "narrow": "dim=1, start=1, length=2",
    "permute": "dims=(0, 2, 3, 1)",
    "permute_copy": "dims=(0, 2, 3, 1)",
    "repeat_interleave": "repeats=2",
    "reshape": "shape=(x.shape[0], 20, 7)",
    "transpose": "dim0=1, dim1=2",
    "unsqueeze": "dim=1",
}
"""The options of views by keyword, as in their default variants."""


def _view_table() -> Iterator[tuple[str, list[Variant]]]:
    yield "nn.Flatten", _module("nn.Flatten", ["", "0", "2", "start_dim=1, end_dim=2"], IMAGE)
    yield "torch.flatten", _function("torch.flatten", ["1", "0", "2, 3", "start_dim=1"], IMAGE, "start_dim=1")
    dims = ["(2, 3)", "1", "-1", "(2, 3), keepdim=True", "dim=(2, 3)", "dim=1, keepdim=True", "dim=(1, 2, 3)", "(0, 2)"]
    means = _function("torch.mean", dims, IMAGE, "dim=(2, 3)")
    yield "torch.mean", _laid([*means, means[0].named("no_arguments", call="torch.mean(x)", core=False)])
    yield "Tensor.mean", _laid(_each("x.mean({})", [*dims, ""], IMAGE))
    for name, call in (("torch.{}", "torch.{}(x, {{}})"), ("Tensor.{}", "x.{}({{}})")):
        for function, options in {
            "narrow": ["1, 1, 2", "2, 0, 3", "-1, 2, 3"],
            "repeat_interleave": ["2", "2, dim=1", "repeats=3, dim=0"],
            "transpose": ["1, 2", "0, 1", "-1, -2", "1, 1", "dim0=1, dim1=3"],
            "unsqueeze": ["1", "0", "-1", "dim=2"],
            "unsqueeze_": ["1", "0", "-1", "dim=2"],
            "permute": ["0, 2, 3, 1", "3, 2, 1, 0"] if "Tensor" in name else ["(0, 2, 3, 1)", "(3, 2, 1, 0)"],
            "permute_copy": ["(0, 2, 3, 1)"],
            "contiguous": ["", "memory_format=torch.channels_last"],
            "detach": [""],
            "detach_": [""],
            "repeat": ["1, 2, 1, 1", "2, 1, 1, 1, 1"],
            "reshape": ["x.shape[0], 20, 7", "-1", "(4, -1)"],
            "view": ["x.shape[0], 20, 7", "-1", "(4, -1)"],
            "resize_": ["2, 4, 35", "4, 70"],
        }.items():
            variants = _each(call.format(function), options, IMAGE)
            if any(option.startswith(("x.shape", "2, 4, 35")) for option in options):
                variants = [v for v in variants if v.batch is None or "shape" in v.call]
            if function == "view":  # a channels-last tensor has no such view
                variants = [v for v in variants if v.name != "channels_last"]
            if function == "reshape":  # torch's default mappings give it the qparams of its input
                variants.append(in_network(variants[0]))
            if name.startswith("torch") and function in BY_KEYWORD:
                by_keyword = f"torch.{function}(input=x, {BY_KEYWORD[function]})"
                variants.append(variants[0].named("keyword", call=by_keyword, core=False))
            yield name.format(function), variants
        squeezable = (2, 1, 5, 1)
        squeezes = _each(call.format("squeeze"), ["1", "-1", "dim=1", "0", "(1, -1)"], squeezable)
        squeezes.append(squeezes[0].named("nothing", operands=operands(IMAGE), core=False))
        if name.startswith("torch"):
            squeezes.append(squeezes[0].named("keyword", call="torch.squeeze(input=x, dim=1)", core=False))
        yield name.format("squeeze"), squeezes
    yield "Tensor.squeeze_", _each("x.squeeze_({})", ["1", "-1", "dim=1", ""], (2, 1, 5, 1))
    yield "operator.floordiv", _each("x // {}", ["2", "0.5", "2.0"], IMAGE)
    size = _each("x.reshape(x.size({}), 140)", ["0", "dim=0"], IMAGE)
    yield "Tensor.size", [*size, in_network(size[0])]
    shape = _each("x.reshape(x.shape[{}], 140)", ["0"], IMAGE)
    yield "Tensor.shape", [*shape, in_network(shape[0])]


def _joining_table() -> Iterator[tuple[str, list[Variant]]]:
    for function in ("torch.cat", "torch.concat", "torch.concatenate", "torch.stack"):
        two = Variant("default", f"{function}([x, y], dim=1)", operands(IMAGE, IMAGE), core=True, output=IMAGE)
        wider = (
            {}
            if function == "torch.stack"
            else {"unequal": two.named("unequal", operands=operands(IMAGE, (2, 3, 7, 5)), core=False)}
        )
        yield (
            function,
            [
                two,
                *wider.values(),
                two.named("three", call=f"{function}([x, y, z])", operands=operands(IMAGE, IMAGE, IMAGE), core=False),
                two.named("tuple", call=f"{function}((x, y), 1)", core=False),
                two.named("last_dimension", call=f"{function}([x, y], -1)", core=False),
                two.named("same_tensor", call=f"{function}([x, x], dim=1)", operands=operands(IMAGE), core=False),
                two.named("single", call=f"{function}([x], dim=1)", operands=operands(IMAGE), core=False),
                two.named("keyword", call=f"{function}(tensors=[x, y], dim=1)", core=False),
                *batch_variants(two, 0, 1),
                *layout_variants(two),
                two.named(
                    "formats",
                    call=f"{function}([x, y])",
                    operands=operands(x=IMAGE, y=Operand(IMAGE, layout="channels_last")),
                    core=False,
                ),
                *data_variants(two, "positive", "negative"),
            ],
        )


SHAPES = dict([*_pooling_table(), *_resizing_table(), *_view_table(), *_joining_table()])
