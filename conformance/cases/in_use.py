"""Layers in use as variants: the options and shapes of each layer of public networks, written as models of claims."""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby
from typing import Any

import numpy

from conformance.configs.spelling import INSTANCE_NORM, TRANSPOSED, is_batch_norm, spelled
from conformance.results.in_use import LayerInUse

from .operators import OPERATORS, RECORDS, Operand, Shape, Variant
from .operators.calls import BY_NAME, applied
from .operators.expressions import NONE, Call, Source, X, Y
from .operators.geometry import Geometry
from .operators.joining import JOINING
from .operators.pooling import POOLING
from .operators.record import WIDE_INPUT
from .operators.views import VIEWS

POSITIONAL: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("nn.BatchNorm2d", "nn.BatchNorm3d"), ("num_features",)),
    **{f"nn.InstanceNorm{rank}d": ("num_features",) for rank in (1, 2, 3)},
    **{f"nn.{name}Pool{rank}d": ("kernel_size",) for name in ("Avg", "Max") for rank in (1, 2, 3)},
    **{f"nn.AdaptiveAvgPool{rank}d": ("output_size",) for rank in (1, 2, 3)},
    **dict.fromkeys(("nn.Embedding", "nn.EmbeddingBag"), ("num_embeddings", "embedding_dim")),
    "nn.LayerNorm": ("normalized_shape",),
    "nn.PixelShuffle": ("upscale_factor",),
    "nn.Hardtanh": ("min_val", "max_val"),
    "nn.ELU": ("alpha",),
    "nn.LeakyReLU": ("negative_slope",),
    **dict.fromkeys(
        ["nn.ReLU", "nn.ReLU6", "nn.Hardswish", "nn.Hardsigmoid", "nn.Sigmoid", "nn.Tanh", "nn.Softmax", "nn.Dropout"],
        (),
    ),
}
"""Modules whose constructor takes their options, and the options that come first and without their name."""

CALLS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(["torch.sigmoid", "torch.tanh", "F.relu", "F.hardswish", "F.dropout", "Tensor.sigmoid"], ()),
    "Tensor.mean": ("dim",),
    "Tensor.repeat": ("sizes",),
    "F.adaptive_avg_pool2d": ("output_size",),
    "F.avg_pool2d": ("kernel_size",),
    "F.max_pool2d": ("kernel_size",),
    "F.interpolate": (),
    "F.pad": ("pad",),
    "F.layer_norm": ("normalized_shape",),
    "F.group_norm": ("num_groups",),
    "torch.cat": ("dim",),
    "torch.stack": ("dim",),
}
"""Functions and methods of one input or of a list, and the names of arguments that have only a position."""

SHARING = frozenset(record.name for record in (*POOLING, *VIEWS, *JOINING))
"""Operators whose result may have another shape than their input, whose qparams it has."""

BINARY = {
    "operator.add": "+",
    "operator.sub": "-",
    "operator.mul": "*",
    **{name: name for name in ("torch.add", "torch.mul", "torch.sub", "torch.matmul")},
}
"""Functions of two operands, and the sign or name by which they are called."""

IN_ROWS = frozenset(
    {
        *(
            "nn.Linear",
            "F.linear",
            "nn.LayerNorm",
            "F.layer_norm",
            "nn.Embedding",
            "nn.EmbeddingBag",
            "nn.LSTM",
            "nn.GRU",
        ),
        *("torch.matmul", "nn.Softmax", "F.softmax", "nn.Flatten", "torch.flatten"),
    }
)
"""Operators whose results no kernel lays out as images in channels-last format."""

UNCONFIGURED = frozenset({"bias", "affine"})
"""Recorded attributes that the constructors of `POSITIONAL` do not take, or by default."""

DEFAULTS: Mapping[str, object] = {
    "stride": 1,
    "padding": 0,
    "dilation": 1,
    "groups": 1,
    "output_padding": 0,
    "padding_mode": "zeros",
    "inplace": False,
    "ceil_mode": False,
    "count_include_pad": True,
    "divisor_override": None,
    "antialias": False,
    "return_indices": False,
    "include_last_offset": False,
}
"""Options that are left out of a model where they have these values."""

SHORT = {
    "kernel_size": "k",
    "stride": "s",
    "padding": "p",
    "dilation": "d",
    "groups": "g",
    "output_size": "to",
    "output_padding": "op",
    "negative_slope": "slope",
    "normalized_shape": "n",
    "num_groups": "g",
}
"""Options by what they are called in names of variants."""


APPLIED = applied(BY_NAME)


class Unwritable(ValueError):
    """A layer in use that cannot be written as a variant; the message is the reason."""


@dataclass(frozen=True)
class _Layer:
    """A layer in use with values in place of text. `produced` says whether it follows another layer, `channels_last` whether
    that lays out images in channels-last format, as kernels of convolutions do and those behind them keep it, and `folded`
    whether a batch norm follows the root operator."""

    operator: str
    options: Mapping[str, object]
    shapes: tuple[Shape, ...]
    produced: bool
    channels_last: bool
    folded: bool

    @classmethod
    def of(cls, layer: LayerInUse) -> "_Layer":
        operator, _, followers = layer.pattern.partition("+")
        options = {name: value_of(text) for name, text in sorted(layer.options.items())}
        shapes = tuple(tuple(map(int, text.split("x"))) for text in layer.inputs)
        if not shapes:
            raise Unwritable("the table has no shape of an input")
        behind = {producer.partition("+")[0] for producer in layer.producers}
        images = operator not in IN_ROWS and not behind <= IN_ROWS
        folded = any(map(is_batch_norm, followers.split("+")))
        return cls(operator, options, shapes, bool(layer.producers), images, folded)

    @cached_property
    def configured(self) -> dict[str, object]:
        """Options other than their defaults. The stride of pooling is its kernel by default, so it stays."""
        kept = {"stride"} if spelled(self.operator).computes.endswith("pool") else set()
        return {
            name: value
            for name, value in self.options.items()
            if name in kept or name not in DEFAULTS or not _is_each(value, DEFAULTS[name])
        }


@cache
def value_of(text: str) -> object:
    """The value of an option from its text in the table: numbers joined by `x` are a tuple, and `0x3` is no number."""
    try:
        value: object = ast.literal_eval(f"({text.replace('x', ', ')})")
    except (ValueError, SyntaxError):
        return text
    return value


def _is_each(value: object, default: object) -> bool:
    """Whether an option has its default value, for all dimensions if it has one for each."""
    return all(v == default for v in value) if isinstance(value, tuple) else value == default


def _collapsed(value: object) -> object:
    """An option of a convolution as networks write it: one number if all dimensions have the same."""
    return value[0] if isinstance(value, tuple) and len({*value}) == 1 else value


def text_of(value: object) -> str:
    """The text of an option or shape in the table."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _label(options: Mapping[str, object]) -> str:
    """Options as part of a name: `_k3_s2_inplace`. An option without a name has only a position in the call."""
    parts = []
    for name, value in options.items():
        if value is True:
            parts.append(f"_{name}")
        elif name in SHORT:
            parts.append(f"_{SHORT[name]}{text_of(value)}")
        else:
            parts.append(f"_{name}_{text_of(value)}" if name else f"_{text_of(value)}")
    return "".join(parts)


def _sizes(shapes: Iterable[Shape]) -> str:
    """Shapes as a name, with the number of equal ones in a row; of many different ones, the first and their channels."""
    runs = [(len([*equal]), "x".join(map(str, shape))) for shape, equal in groupby(shapes)]
    texts = [text if count == 1 else f"{count}_of_{text}" for count, text in runs]
    if len(texts) <= 3:
        return "_and_".join(texts)
    return f"{texts[0]}_with_" + "_".join(shape.split("x")[1] for _, shape in runs[1:])


def _names(count: int) -> list[str]:
    """Names of operands, as in the fixed variants."""
    return ["x", "y", "z", *(f"x{number}" for number in range(4, count + 1))][:count]


def _operands(shapes: Iterable[Shape]) -> dict[str, Operand]:
    kept = [*shapes]
    return {name: Operand(shape) for name, shape in zip(_names(len(kept)), kept, strict=True)}


def _convolution(layer: _Layer) -> Variant:
    """A convolution. One that a batch norm follows has no bias of its own: the recorded one is that of the folded layer."""
    if spelled(layer.operator).namespace != "nn":
        raise Unwritable("the table does not record the shape of a function's weight")
    channels = layer.options["in_channels"], layer.options["out_channels"]
    names = ("stride", "padding", "output_padding", "dilation", "groups", "padding_mode")
    options = {name: _collapsed(layer.configured[name]) for name in names if name in layer.configured}
    spelling = spelled(layer.operator)
    assert spelling.rank is not None
    transposed = spelling.computes == TRANSPOSED
    shape, kernel = layer.shapes[0], _collapsed(layer.options["kernel_size"])
    label = _label({"kernel_size": kernel} | options)
    if layer.folded or layer.options["bias"] is None:
        options["bias"] = False
    geometry = Geometry(spelling.rank, channels, kernel, transposed=transposed, spatial=shape[2:], **options)  # type: ignore[arg-type]
    bias = "_no_bias" if layer.options["bias"] is None else ""
    name = f"{channels[0]}to{channels[1]}_{'x'.join(map(str, shape[2:]))}{label}{bias}"
    output = (shape[0], *geometry.output[1:])
    return Variant(name, APPLIED, _operands([shape]), geometry.module, output=output)


def _linear(layer: _Layer) -> Variant:
    if spelled(layer.operator).namespace != "nn":
        raise Unwritable("the table does not record the shape of a function's weight")
    features = int(str(layer.options["in_features"])), int(str(layer.options["out_features"]))
    leading, bias = layer.shapes[0][:-1], layer.options["bias"] is not None
    name = f"{features[0]}to{features[1]}_rows_{'x'.join(map(str, leading))}{'' if bias else '_no_bias'}"
    stated = {} if bias and not layer.folded else {"bias": False}
    return RECORDS["nn.Linear"].at(name, {"features": features, "leading": leading, **stated})


def _module(layer: _Layer) -> Variant:
    """A module of one input. Only the shape of a result that is its input's is stated."""
    first = {name: layer.options[name] for name in POSITIONAL[layer.operator]}
    rest = {name: value for name, value in layer.configured.items() if name not in UNCONFIGURED | first.keys()}
    if layer.operator == "nn.ReLU6":
        rest = {name: value for name, value in rest.items() if name == "inplace"}
    elif layer.options.get("affine") and spelled(layer.operator).computes == INSTANCE_NORM:
        rest["affine"] = True
    shape = layer.shapes[0]
    label = {name if name in SHORT else "": value for name, value in first.items() if name != "num_features"}
    if layer.operator == "nn.Hardtanh":
        label = {"from": first["min_val"], "to": first["max_val"]}
    init = Call(layer.operator, first.values(), rest)
    return _variant(layer, _sizes([shape]) + _label(label | rest), APPLIED, [shape], init)


def _variant(
    layer: _Layer,
    name: str,
    call: Call,
    shapes: Sequence[Shape],
    init: Source = NONE,
    affine: Mapping[str, Shape] | None = None,
) -> Variant:
    """A variant with the data of its operator's default one.

    A function with fixed qparams follows an operator with qparams of its own, as in a network, if the layer follows another.
    """
    default = OPERATORS[layer.operator][0]
    output = () if layer.operator in SHARING else shapes[0]
    variant = Variant(name, call, _operands(shapes), init, affine or {}, output, data=default.data)
    fixed = any(form.prelude for form in OPERATORS[layer.operator]) and default.data in ("unit", "signed_unit")
    return variant.named(name, prelude=WIDE_INPUT, data="full") if fixed and layer.produced else variant


def _prelu(layer: _Layer) -> Variant:
    """A PReLU with a slope for each channel, or a single one for a matrix: the table does not record how many."""
    shape = layer.shapes[0]
    init = Call("nn.PReLU", shape[1:2] if len(shape) > 2 else ())
    return Variant(_sizes([shape]), APPLIED, _operands([shape]), init, output=shape)


def _call(layer: _Layer) -> Variant:
    """A function or method of one input, or of a list of inputs."""
    parameters, (kind, _, name) = CALLS[layer.operator], layer.operator.partition(".")
    given = {name: value for name, value in layer.configured.items() if not name.startswith("arg")}
    positions = sorted(name for name in layer.options if name.startswith("arg"))
    if positions != [f"arg{number}" for number in range(1, len(parameters) + 1)][: len(positions)]:
        raise Unwritable(f"the table does not say what the arguments {' '.join(positions)} are")
    first = [layer.options[name] for name in positions]
    affine = dict(zip(("weight", "bias"), layer.shapes[1:], strict=False)) if layer.operator.endswith("_norm") else {}
    listed = layer.operator in ("torch.cat", "torch.stack")
    inputs = [[*map(Source, _names(len(layer.shapes)))]] if listed else [X] * (kind != "Tensor")
    if layer.operator == "F.layer_norm" and isinstance(first[0], int):
        first = [(first[0],)]
    if layer.operator == "F.interpolate" and not given.keys() & {"size", "scale_factor"}:
        raise Unwritable("the size of the result comes from another tensor, which the table does not record")
    if layer.operator in ("Tensor.repeat", "F.pad") and not first:
        raise Unwritable("the table does not record the sizes, which are computed")
    positional = [*inputs, *first, *(Source(f"self.{parameter}") for parameter in affine)]
    call = Call(f"x.{name}" if kind == "Tensor" else layer.operator, positional, given)
    shapes = layer.shapes if listed else layer.shapes[:1]
    named = {one if one in SHORT else "": value for one, value in zip(parameters, first, strict=False)} | given
    return _variant(layer, _sizes(shapes) + _label(named), call, shapes, affine=affine)


def _binary(layer: _Layer) -> Variant:
    """Arithmetic of two tensors, of a tensor and a number, or of a tensor with itself."""
    shapes = layer.shapes
    if len(shapes) > 2 or (len(shapes) == 2 and layer.options):
        raise Unwritable("the table has more inputs than the function takes")
    numbers = {name: value for name, value in layer.options.items() if name in ("arg0", "arg1")}
    label = _sizes(shapes) + "".join(
        f"_scalar_{'left' if n == 'arg0' else 'right'}_{text_of(v)}" for n, v in numbers.items()
    )
    if len(shapes) == 2:
        taken: list[Any] = [X, Y]
    else:
        taken = [numbers.get(name, X) for name in ("arg0", "arg1")]
        label += "" if numbers else "_same_tensor"
    output = () if layer.operator == "torch.matmul" else numpy.broadcast_shapes(*shapes)  # torch's own imports sympy
    return Variant(label, Call(BINARY[layer.operator], taken), _operands(shapes), output=output)


def _embedding(layer: _Layer) -> Variant:
    """An embedding of a matrix of indices, whose rows are bags for an embedding bag."""
    variant = _module(layer)
    rows = int(str(layer.options["num_embeddings"]))
    name = f"{rows}x{layer.options['embedding_dim']}_indices_{_sizes(layer.shapes[:1])}"
    name += f"_{layer.options['mode']}" if "mode" in layer.options else ""
    return variant.named(name, operands={"x": Operand(layer.shapes[0], "indices", rows)}, output=())


def _recurrent(layer: _Layer) -> Variant:
    """A recurrent layer with the batch first, as all of the table, and as many hidden features as inputs, which it lacks."""
    batch, steps, width = layer.shapes[0]
    init = Call(layer.operator, (width, width), {"batch_first": True})
    return Variant(f"{width}_batch_{batch}_steps_{steps}", APPLIED, _operands(layer.shapes[:1]), init)


WRITERS: dict[str, Callable[[_Layer], Variant]] = {
    **dict.fromkeys(POSITIONAL, _module),
    **dict.fromkeys(CALLS, _call),
    **dict.fromkeys(BINARY, _binary),
    **{f"{kind}{rank}d": _convolution for kind in ("nn.Conv", "nn.ConvTranspose", "F.conv") for rank in (1, 2, 3)},
    **dict.fromkeys(("nn.Linear", "F.linear"), _linear),
    **dict.fromkeys(("nn.Embedding", "nn.EmbeddingBag"), _embedding),
    **dict.fromkeys(("nn.LSTM", "nn.GRU"), _recurrent),
    "nn.PReLU": _prelu,
}
"""How a layer is written, by operator."""


def _parsed(layer: LayerInUse) -> _Layer:
    operator = layer.pattern.partition("+")[0]
    if operator not in OPERATORS:
        raise Unwritable("no claim has the operator")
    if operator not in WRITERS:
        raise Unwritable("the table does not record what the operator takes")
    return _Layer.of(layer)


def variant_of(layer: LayerInUse) -> Variant:
    """The variant of the root operator of a layer's pattern with the layer's options and shapes.

    Its name is derived from them, so equal layers have equal variants, and different layers of a pattern different names.
    Raises Unwritable with the reason if the tables of operators lack the operator or the table of layers lacks what the
    operator takes.
    """
    parsed = _parsed(layer)
    return WRITERS[parsed.operator](parsed)


def as_produced(layer: LayerInUse) -> Variant:
    """The variant of a layer with images and volumes in the memory format that the layer before gives them.

    Raises Unwritable as `variant_of` does.
    """
    parsed = _parsed(layer)
    variant = WRITERS[parsed.operator](parsed)
    if not parsed.channels_last:
        return variant
    images = {
        name: replace(spec, layout="channels_last")
        for name, spec in variant.operands.items()
        if len(spec.shape) in (4, 5)
    }
    name = f"{variant.name}_channels_last" if images else variant.name
    return variant.named(name, operands={**variant.operands, **images})
