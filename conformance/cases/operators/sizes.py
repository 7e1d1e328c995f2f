"""Shapes of the metamorphic relations: larger than vectors, thread grains and cache tiles of kernels, with odd remainders."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from .expressions import Call
from .variant import Shape, Variant

IMAGE: Shape = (8, 67, 13, 11)
"""76,648 elements: torch splits element-wise work among threads from 32,768 on; vectors are 16 to 64 bytes."""

INPUTS, OUTPUTS = 35, 67
"""Channels of a layer: neither is a multiple of a vector or tile of any engine."""

SIGNALS: dict[int, Shape] = {1: (8, OUTPUTS, 201), 2: (8, OUTPUTS, 15, 13), 3: (4, OUTPUTS, 5, 9, 7)}
"""Shapes by the number of spatial dimensions."""

ROWS, WIDTH, LOOKUPS = 4001, 68, 1013
"""Size of an embedding table and number of lookups. The width is even, since two 4-bit values share a byte."""


@dataclass(frozen=True)
class Size:
    """The size of an operator's default variant.

    `shapes` are those of the operands in order and `output` the shape of the result; without one it is the shape of the
    first operand. `arguments` replace arguments of the call that configures the operator, by position or keyword: the
    module's constructor, else the function itself. `parameters` are the shapes of the tensors that a functional takes,
    `limit` is the exclusive upper bound of indices and offsets.
    """

    shapes: tuple[Shape, ...]
    arguments: Mapping[int | str, object] = field(default_factory=dict)
    parameters: Mapping[str, Shape] = field(default_factory=dict)
    output: Shape | None = None
    limit: int = 0


def resized(operator: str, default: Variant, size: Size) -> Variant:
    """The default variant of an operator in another size.

    Raises ValueError naming the operator and the source text if that text lacks an argument that `size` replaces.
    """
    source = {"init" if default.init else "call": default.init or default.call}
    if size.arguments:
        try:
            source = {name: Call.parse(text).with_arguments(size.arguments).source for name, text in source.items()}
        except ValueError as error:
            raise ValueError(f"{operator}, variant {default.name}: cannot be resized: {error}") from None
    operands = {
        name: replace(spec, shape=shape, limit=size.limit or spec.limit)
        for (name, spec), shape in zip(default.operands.items(), size.shapes, strict=False)
    }
    output = size.shapes[0] if size.output is None else size.output
    return default.named(default.name, **source, operands=operands, parameters=size.parameters, output=output)


def pooling(rank: int) -> Iterator[str]:
    """Names of the operators that pool over `rank` dimensions."""
    for module, function in (
        ("AvgPool", "avg_pool"),
        ("MaxPool", "max_pool"),
        ("AdaptiveAvgPool", "adaptive_avg_pool"),
    ):
        yield f"nn.{module}{rank}d"
        yield f"F.{function}{rank}d"


def each(operators: str, size: Size) -> dict[str, Size]:
    """One size for several operators, whose names are separated by spaces."""
    return dict.fromkeys(operators.split(), size)


def _layers() -> Iterator[dict[str, Size]]:
    for rank, shape in SIGNALS.items():
        spatial, kernel = shape[2:], (3,) * rank
        taken, output = ((shape[0], INPUTS, *spatial),), (shape[0], OUTPUTS, *spatial)
        bias = {"bias": (OUTPUTS,)}
        weight, transposed = {"weight": (OUTPUTS, INPUTS, *kernel)}, {"weight": (INPUTS, OUTPUTS, *kernel)}
        yield {
            f"nn.Conv{rank}d": Size(taken, {0: INPUTS, 1: OUTPUTS}, output=output),
            f"nn.ConvTranspose{rank}d": Size(taken, {0: INPUTS, 1: OUTPUTS}, output=output),
            f"F.conv{rank}d": Size(taken, parameters=weight | bias, output=output),
            f"F.conv_transpose{rank}d": Size(taken, parameters=transposed | bias, output=output),
            f"nn.InstanceNorm{rank}d": Size((shape,), {0: OUTPUTS}),
            **dict.fromkeys(pooling(rank), Size((shape,))),
        }
        if rank > 1:
            yield {f"nn.BatchNorm{rank}d": Size((shape,), {0: OUTPUTS})}


ANY = Size((IMAGE, IMAGE))
"""The size of operators that take tensors of any shape."""

SIZES: dict[str, Size] = {
    **{operator: size for sizes in _layers() for operator, size in sizes.items()},
    "nn.Linear": Size(((61, 515),), {0: 515, 1: 387}, output=(61, 387)),
    "F.linear": Size(((61, 515),), parameters={"weight": (387, 515), "bias": (387,)}, output=(61, 387)),
    "F.instance_norm": Size((SIGNALS[2],), parameters={"weight": (OUTPUTS,), "bias": (OUTPUTS,)}),
    "F.group_norm": Size(((6, 68, 13, 11),), parameters={"weight": (68,), "bias": (68,)}),
    "nn.LayerNorm": Size(((8, 37, 131),), {0: 131}),
    "F.layer_norm": Size(((8, 37, 131),), {1: (131,)}, {"weight": (131,), "bias": (131,)}),
    **each("nn.GRUCell nn.LSTMCell nn.RNNCell", Size(((33, 67),), {0: 67, 1: 65})),
    **each("nn.GRU nn.LSTM", Size(((19, 8, 67),), {0: 67, 1: 65})),
    "F.embedding": Size(((LOOKUPS,),), parameters={"weight": (ROWS, WIDTH)}, limit=ROWS),
    **each("nn.Embedding nnqat.Embedding", Size(((LOOKUPS,),), {0: ROWS, 1: WIDTH}, limit=ROWS)),
    **each("nn.EmbeddingBag nnqat.EmbeddingBag", Size(((LOOKUPS,), (101,)), {0: ROWS, 1: WIDTH}, limit=LOOKUPS)),
    "torch.matmul": Size(((8, 37, 67), (8, 67, 41))),
    **each("nn.PixelShuffle F.pixel_shuffle", Size(((8, 68, 13, 11),))),
    **each("nn.PixelUnshuffle F.pixel_unshuffle", Size(((8, 19, 14, 22),))),
    **each("torch.squeeze Tensor.squeeze Tensor.squeeze_", Size(((8, 1, 9581, 1),))),
    "torch.narrow": Size((IMAGE,), {2: 5, 3: 41}),
    **each("Tensor.reshape Tensor.view", Size((IMAGE,), {1: 871, 2: 11})),
    "Tensor.resize_": Size((IMAGE,), {0: 8, 1: 67, 2: 143}),
    **each("Tensor.shape Tensor.size", Size((IMAGE,), {1: 9581})),
}
"""Sizes by operator; `ANY` holds for the others. A fused or QAT module has the size of the layer inside it."""


def enlarged(operator: str, default: Variant) -> Variant:
    """The default variant of an operator in the size of the metamorphic relations."""
    return resized(operator, default, SIZES.get(operator, ANY))
