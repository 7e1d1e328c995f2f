"""Convolutions and linear layers: as modules, functionals, fused modules and QAT modules."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .expressions import Call
from .geometry import UNBATCHED, Geometry, positional
from .variant import (
    Operand,
    Variant,
    arguments,
    batch_variants,
    called_twice,
    data_variants,
    layout_variants,
    operands,
    static_variants,
    strided_variant,
)


def _geometries(rank: int) -> Iterator[tuple[str, Geometry, bool]]:
    """Name, geometry and whether it is core, for convolutions of `rank` dimensions."""

    def of(*args: object, **options: object) -> Geometry:
        return Geometry(rank, *args, **options)  # type: ignore[arg-type]

    yield "default", of(padding=1), True
    yield "no_bias", of(padding=1, bias=False), True
    yield "groups", of(padding=1, groups=2), True
    yield "stride", of(stride=2), False
    yield "dilation", of(padding=2, dilation=2), False
    yield "depthwise", of((8, 8), padding=1, groups=8), False
    yield "pointwise", of((5, 3), 1), False
    yield "unequal", of((3, 5), 2), False
    yield "wide", of((16, 32), padding=1), False
    if rank > 1:
        kernel, stride, padding = ((3, 5), (2, 1), (0, 2)) if rank == 2 else ((1, 3, 2), (1, 2, 1), (0, 1, 2))
        yield "asymmetric", of((4, 6), kernel, stride=stride, padding=padding), False
        # rows of the output that are computed from padding alone
        flat, beyond = (1,) * (rank - 1) + (2,), (1,) + (0,) * (rank - 1)
        yield "rows_of_padding", of((16, 16), flat, padding=beyond, groups=16, spatial=(2, 4, 3)[-rank:]), False
    if rank == 2:
        yield "grayscale", of((1, 8), padding=1), False
    if rank == 3:
        yield "shallow", of((4, 8), padding=1, groups=4, spatial=(1, 6, 4)), False
    yield "padding_same", of(padding="same"), True


def _transposed_geometries(rank: int) -> Iterator[tuple[str, Geometry, bool]]:
    def of(*args: object, **options: object) -> Geometry:
        return Geometry(rank, *args, transposed=True, **options)  # type: ignore[arg-type]

    yield "default", of(padding=1), True
    yield "no_bias", of(padding=1, bias=False), True
    small = (5, 3, 2) if rank == 3 else ()
    yield "stride", of(stride=2, padding=1, output_padding=1, spatial=small), True
    yield "groups", of(padding=1, groups=2), True
    yield "dilation", of(padding=2, dilation=2), False
    yield "depthwise", of((8, 8), padding=1, groups=8), True
    yield "unequal", of((3, 5), 2), False
    yield "wide", of((16, 32), padding=1), False
    if rank == 2:
        yield "upsampling", of((8, 8), 2, stride=2, spatial=(4, 3)), False
        yield "grayscale", of((1, 8), padding=1), False
        # the padding of a transposed convolution is cut from its result: here as much as an element of the input contributes
        yield "cropped", of(padding=3), False


def _module_variants(rank: int, *, transposed: bool = False) -> Iterator[Variant]:
    geometries = _transposed_geometries(rank) if transposed else _geometries(rank)
    variants = {}
    for name, geometry, core in geometries:
        variants[name] = Variant(
            name,
            "self.op(x)",
            operands((2, geometry.channels[0], *geometry.spatial)),
            geometry.module,
            output=geometry.output,
            core=core,
        )
    yield from variants.values()
    default = variants["default"]
    if not transposed:
        yield default.named("per_channel", per_channel=True)
        for laid in layout_variants(default):
            yield laid
            if rank == 2:
                yield laid.named("channels_last_batch0", batch=0)
        yield from _to_one(default, rank)
        yield variants["depthwise"].named("depthwise_per_channel", per_channel=True)
        yield from (
            default.named(f"padding_{mode}", init=Geometry(rank, padding=1, padding_mode=mode).module, core=False)
            for mode in ("reflect", "replicate", "circular")
        )
    yield from static_variants(default)
    yield from batch_variants(default)
    yield default.named("unbatched", operands=operands((4, *UNBATCHED[rank])), output=(), core=False)
    yield from data_variants(default)
    yield default.named("keyword", call="self.op(input=x)", core=False)
    same = Geometry(rank, (4, 4), padding=1, transposed=transposed)
    yield called_twice(default, init=same.module)


def _to_one(default: Variant, rank: int) -> list[Variant]:
    """Channels-last images of which each channel becomes one element: the result lies in memory as a contiguous one does."""
    if rank != 2:
        return []
    geometry = Geometry(rank, kernel=4, padding=1, spatial=(2, 2))
    shapes = operands((2, geometry.channels[0], *geometry.spatial))
    form = (
        {"init": geometry.module}
        if default.init
        else {"call": f"F.conv2d(x, self.weight, self.bias{positional(geometry)})", "parameters": geometry.parameters}
    )
    return layout_variants(default.named("", operands=shapes, output=geometry.output, **form), "channels_last_to_one")


def _functional_variants(rank: int, *, transposed: bool = False) -> Iterator[Variant]:
    function = f"F.conv_transpose{rank}d" if transposed else f"F.conv{rank}d"
    geometries = _transposed_geometries(rank) if transposed else _geometries(rank)
    variants = {}
    for name, geometry, core in geometries:
        bias = "self.bias" if "bias" in geometry.parameters else "None"
        variants[name] = Variant(
            name,
            f"{function}(x, self.weight, {bias}{positional(geometry)})",
            operands((2, geometry.channels[0], *geometry.spatial)),
            parameters=geometry.parameters,
            output=geometry.output,
            core=core,
        )
    yield from variants.values()
    default = variants["default"]
    if not transposed:
        yield default.named("per_channel", per_channel=True)
        yield from _to_one(default, rank)
    weight, bias = "self.weight", "self.bias"
    yield default.named(
        "optionals_left_out",
        call=f"{function}(x, {weight})",
        core=False,
        parameters={"weight": default.parameters["weight"]},
        output=(),
    )
    yield default.named("options_left_out", call=f"{function}(x, {weight}, {bias})", output=(), core=False)
    integers = "1, 1, 0, 1, 1" if transposed else "1, 1, 1, 1"
    yield default.named("integers", call=f"{function}(x, {weight}, {bias}, {integers})", core=False)
    extra = "output_padding=0, " if transposed else ""
    every = f"stride=1, padding=1, {extra}dilation=1, groups=1"
    yield default.named("keyword_options", call=f"{function}(x, {weight}, {bias}, {every})", core=False)
    yield default.named("keyword_bias", call=f"{function}(x, {weight}, bias={bias}, {every})", core=False)
    yield default.named("keyword", call=f"{function}(input=x, weight={weight}, bias={bias}, {every})", core=False)
    yield from static_variants(default)
    yield from batch_variants(default)
    yield default.named("unbatched", operands=operands((4, *UNBATCHED[rank])), output=(), core=False)
    yield from data_variants(default)


@dataclass(frozen=True)
class FusedModule:
    """Modules inside a fused module: the name of the layer, and source of what follows it.

    The source has a place for the number of the layer's output `{channels}`.
    """

    layer: str
    followers: tuple[str, ...]


def _fused_modules() -> Iterator[tuple[str, FusedModule]]:
    relu = "nn.ReLU()"
    for rank in (1, 2, 3):
        layer, norm = f"nn.Conv{rank}d", f"nn.BatchNorm{rank}d({{channels}})"
        yield f"nni.ConvReLU{rank}d", FusedModule(layer, (relu,))
        yield f"nni.ConvBn{rank}d", FusedModule(layer, (norm,))
        yield f"nni.ConvBnReLU{rank}d", FusedModule(layer, (norm, relu))
    for rank in (2, 3):
        yield f"nni.BNReLU{rank}d", FusedModule(f"nn.BatchNorm{rank}d", (relu,))
    yield "nni.ConvAdd2d", FusedModule("nn.Conv2d", ("torch.add",))
    yield "nni.ConvAddReLU2d", FusedModule("nn.Conv2d", ("torch.add", relu))
    yield "nni.LinearReLU", FusedModule("nn.Linear", (relu,))
    yield "nni.LinearBn1d", FusedModule("nn.Linear", ("nn.BatchNorm1d({channels})",))
    yield "nni.LinearLeakyReLU", FusedModule("nn.Linear", ("nn.LeakyReLU(0.25)",))
    yield "nni.LinearTanh", FusedModule("nn.Linear", ("nn.Tanh()",))


def _qat_modules() -> Iterator[tuple[str, str]]:
    for rank in (1, 2, 3):
        for name in ("nnqat.Conv", "nniqat.ConvReLU", "nniqat.ConvBn", "nniqat.ConvBnReLU"):
            yield f"{name}{rank}d", f"nn.Conv{rank}d"
    for name in ("nnqat.Linear", "nniqat.LinearReLU", "nniqat.LinearBn1d"):
        yield name, "nn.Linear"


FUSED = dict(_fused_modules())
"""Fused modules by name."""

QAT = dict(_qat_modules())
"""QAT modules, and the layer whose constructor arguments they take."""


def _relu_less() -> Iterator[tuple[str, str]]:
    for operator, module in FUSED.items():
        *rest, last = module.followers
        if last == "nn.ReLU()":
            same = (name for name, other in FUSED.items() if other == FusedModule(module.layer, tuple(rest)))
            yield operator, next(same) if rest else module.layer
    for rank in (1, 2, 3):
        yield f"nniqat.ConvReLU{rank}d", f"nnqat.Conv{rank}d"
        yield f"nniqat.ConvBnReLU{rank}d", f"nniqat.ConvBn{rank}d"
    yield "nniqat.LinearReLU", "nnqat.Linear"


WITHOUT_RELU = dict(_relu_less())
"""Fused and QAT modules that end in a ReLU, and the module that is the same without it."""


def init_without_relu(operator: str, init: str) -> str:
    """Source of a fused or QAT module (a key of `WITHOUT_RELU`) without its ReLU.

    Raises ValueError if `init` does not construct `operator`.
    """
    module, without = Call.parse(init), WITHOUT_RELU[operator]
    if module.function != operator:
        raise ValueError(f"{init!r} does not construct {operator}")
    if operator in QAT:
        return replace(module, function=without).source
    first, *rest = module.positional[:-1]
    return Call(without, (first, *rest)).source if rest else first


def plain_of(operator: str) -> str:
    """Name of the layer inside a fused or QAT module; any other operator's own name."""
    return FUSED[operator].layer if operator in FUSED else QAT.get(operator, operator)


def wrapped(variant: Variant, operator: str) -> Variant:
    """A variant of a layer as a variant of the fused or QAT module `operator`; of any other operator, as it is."""
    if operator in QAT:
        layer = Call.parse(variant.init)
        keywords = (*layer.keywords, ("qconfig", "qconfig"))
        return variant.named(variant.name, init=Call(operator, layer.positional, keywords).source)
    if operator not in FUSED:
        return variant
    followers = FUSED[operator].followers
    modules = (variant.init, *(follower.format(channels=variant.channels) for follower in followers))
    fused = variant.named(variant.name, init=Call(operator, modules).source)
    if "torch.add" not in followers:
        return fused
    addend = Operand(fused.output, exponent=1)
    return fused.named(fused.name, call="self.op(x, other)", operands={**fused.operands, "other": addend})


def _holding(operator: str, variants: Iterator[Variant]) -> list[Variant]:
    """The core variants of a layer as variants of a fused or QAT module, and those in other ranks that its norm takes."""
    core = [variant for variant in variants if variant.core]
    ranks = {"nni.LinearBn1d": LINEAR_RANKS, "nniqat.LinearBn1d": LINEAR_RANKS[1:]}.get(operator, ())
    return [wrapped(variant, operator) for variant in (*core, *ranks)]


def _convolution_table() -> Iterator[tuple[str, list[Variant]]]:
    for rank in (1, 2, 3):
        yield f"nn.Conv{rank}d", [*_module_variants(rank)]
        yield f"F.conv{rank}d", [*_functional_variants(rank)]
        yield f"nn.ConvTranspose{rank}d", [*_module_variants(rank, transposed=True)]
        yield f"F.conv_transpose{rank}d", [*_functional_variants(rank, transposed=True)]
        for operator in (*FUSED, *QAT):
            if plain_of(operator) == f"nn.Conv{rank}d":
                yield operator, _holding(operator, _module_variants(rank))


def linear(features: tuple[int, int], *leading: int, **options: object) -> Variant:
    shape = (*leading, features[0])
    return Variant(
        "",
        "self.op(x)",
        operands(shape),
        f"nn.Linear({features[0]}, {features[1]}{arguments(**options)})",
        output=(*leading, features[1]),
    )


LINEAR_RANKS = (linear((16, 8), 2, 5).named("rank3"), linear((16, 8), 2, 8).named("rank3_square"))
"""Linear layers behind which a batch norm normalizes another dimension than the layer's outputs. In the second, both
dimensions have the same size: a fusion that confuses them raises no error."""


def _linear_module_variants() -> Iterator[Variant]:
    default = linear((16, 8), 4).named("default", core=True)
    yield default
    yield linear((16, 8), 4, bias=False).named("no_bias", core=True)
    yield default.named("per_channel", per_channel=True)
    yield from static_variants(default)
    yield from batch_variants(default)
    strided = strided_variant(default)
    yield strided
    yield strided.named("strided_batch0", batch=0)
    rank3 = linear((16, 8), 2, 5).named("rank3")
    yield rank3
    yield rank3.named("rank3_batch0", batch=0)
    rank4 = linear((16, 8), 2, 3, 2).named("rank4")
    yield rank4
    yield from layout_variants(rank4)
    yield linear((16, 8)).named("unbatched")
    yield linear((7, 5), 3).named("unequal")
    yield linear((1, 1), 3).named("single_feature")
    yield linear((128, 96), 33).named("wide")
    yield from data_variants(default)
    yield default.named("keyword", call="self.op(input=x)", core=False)
    yield called_twice(linear((8, 8), 4))


def _linear_functional_variants() -> Iterator[Variant]:
    for variant in _linear_module_variants():
        if variant.name in ("keyword", "called_twice"):
            continue
        inputs, outputs = variant.operands["x"].shape[-1], variant.output[-1]
        parameters = {"weight": (outputs, inputs)} | ({} if variant.name == "no_bias" else {"bias": (outputs,)})
        call = "F.linear(x, self.weight)" if variant.name == "no_bias" else "F.linear(x, self.weight, self.bias)"
        yield variant.named(variant.name, init="", call=call, parameters=parameters)
        if variant.name == "default":
            yield variant.named(
                "keyword_bias",
                init="",
                call="F.linear(x, self.weight, bias=self.bias)",
                parameters=parameters,
                core=False,
            )
            yield variant.named(
                "keyword",
                init="",
                call="F.linear(input=x, weight=self.weight, bias=self.bias)",
                parameters=parameters,
                core=False,
            )


def _linear_table() -> Iterator[tuple[str, list[Variant]]]:
    yield "nn.Linear", [*_linear_module_variants()]
    yield "F.linear", [*_linear_functional_variants()]
    for operator in (*FUSED, *QAT):
        if plain_of(operator) == "nn.Linear":
            yield operator, _holding(operator, _linear_module_variants())


WEIGHTED = dict([*_convolution_table(), *_linear_table()])
