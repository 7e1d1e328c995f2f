"""Shapes that the laws are tried on: larger than vectors, thread grains and cache tiles of kernels, with odd remainders."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from .variant import Shape, Variant

IMAGE: Shape = (8, 67, 13, 11)
"""76,648 elements: torch splits element-wise work among threads from 32,768 on; vectors are 16 to 64 bytes."""

INPUTS, OUTPUTS = 35, 67
"""Channels of a layer: neither is a multiple of a vector or tile of any engine."""

SIGNALS: dict[int, Shape] = {1: (8, OUTPUTS, 201), 2: (8, OUTPUTS, 15, 13), 3: (4, OUTPUTS, 5, 9, 7)}
"""By the number of dimensions that a layer slides over."""


@dataclass(frozen=True)
class Size:
    """How the default variants of some operators are enlarged.

    `operators` is a regular expression over their names, `shapes` are those of the operands in order, `rewrites` what is
    replaced in the source text of module and call, `parameters` the shapes of a functional's own tensors, `output` the
    shape of the result where it is not that of the first operand, `limit` of indices and offsets.
    """

    operators: str
    shapes: tuple[Shape, ...]
    rewrites: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Shape] = field(default_factory=dict)
    output: Shape | None = None
    limit: int = 0


def _layers() -> Iterator[Size]:
    for rank, shape in SIGNALS.items():
        spatial, kernel = shape[2:], (3,) * rank
        given, made = (shape[0], INPUTS, *spatial), (shape[0], OUTPUTS, *spatial)
        wider = {"(4, 8, 3": f"({INPUTS}, {OUTPUTS}, 3", f"BatchNorm{rank}d(8)": f"BatchNorm{rank}d({OUTPUTS})"}
        bias = {"bias": (OUTPUTS,)}
        yield Size(rf"F\.conv{rank}d", (given,), parameters={"weight": (OUTPUTS, INPUTS, *kernel), **bias}, output=made)
        transposed = {"weight": (INPUTS, OUTPUTS, *kernel), **bias}
        yield Size(rf"F\.conv_transpose{rank}d", (given,), parameters=transposed, output=made)
        yield Size(rf".*\.Conv.*{rank}d", (given, made), wider, output=made)
        norm = {"(4)": f"({OUTPUTS})"}
        yield Size(rf"nn\.InstanceNorm{rank}d", (shape,), norm)
        yield Size(rf"(nn\.BatchNorm|nni\.BNReLU){rank}d", (shape,), norm)
        yield Size(rf".*[Pp]ool{rank}d", (shape,))


ROWS, WIDTH, LOOKUPS = 4001, 68, 1013
"""Of embeddings. The width is even, since two 4-bit values share a byte."""

SIZES = (
    *_layers(),
    Size(r"F\.linear", ((61, 515),), parameters={"weight": (387, 515), "bias": (387,)}, output=(61, 387)),
    Size(r".*\.Linear.*", ((61, 515),), {"(16, 8": "(515, 387", "Norm1d(8)": "Norm1d(387)"}, output=(61, 387)),
    Size(r"F\.instance_norm", (SIGNALS[2],), parameters={"weight": (OUTPUTS,), "bias": (OUTPUTS,)}),
    Size(r"F\.group_norm", ((6, 68, 13, 11),), parameters={"weight": (68,), "bias": (68,)}),
    Size(r"nn\.LayerNorm", ((8, 37, 131),), {"(16)": "(131)"}),
    Size(r"F\.layer_norm", ((8, 37, 131),), {"(16,)": "(131,)"}, {"weight": (131,), "bias": (131,)}),
    Size(r"nn\.(GRU|LSTM|RNN)Cell", ((33, 67),), {"(8, 6": "(67, 65"}),
    Size(r"nn\.(GRU|LSTM)", ((19, 8, 67),), {"(8, 6": "(67, 65"}),
    Size(r"F\.embedding", ((LOOKUPS,),), parameters={"weight": (ROWS, WIDTH)}, limit=ROWS),
    Size(r".*\.Embedding", ((LOOKUPS,),), {"(10, 12": f"({ROWS}, {WIDTH}"}, limit=ROWS),
    Size(r".*\.EmbeddingBag", ((LOOKUPS,), (101,)), {"(10, 12": f"({ROWS}, {WIDTH}"}, limit=LOOKUPS),
    Size(r"torch\.matmul", ((8, 37, 67), (8, 67, 41))),
    Size(r".*(PixelS|pixel_s)huffle", ((8, 68, 13, 11),)),
    Size(r".*(PixelUns|pixel_uns)huffle", ((8, 19, 14, 22),)),
    Size(r".*\.squeeze_?", ((8, 1, 9581, 1),)),
    Size(r"torch\.narrow", (IMAGE,), {"1, 1, 2": "1, 5, 41"}),
    Size(r"Tensor\.(reshape|view)", (IMAGE,), {"20, 7": "871, 11"}),
    Size(r"Tensor\.resize_", (IMAGE,), {"2, 4, 35": "8, 67, 143"}),
    Size(r"Tensor\.(shape|size)", (IMAGE,), {"140": "9581"}),
    Size(r".*", (IMAGE, IMAGE)),
)
"""Looked up in order; the last row is for what takes tensors of any shape."""


def enlarged(operator: str, default: Variant) -> Variant:
    """The default variant of an operator on the shapes that the laws are tried on."""
    return resized(default, next(one for one in SIZES if re.fullmatch(one.operators, operator))).named("large")


def resized(default: Variant, size: Size) -> Variant:
    """The default variant of an operator in another size."""
    init, call = default.init, default.call
    for old, new in size.rewrites.items():
        init, call = init.replace(old, new), call.replace(old, new)
    operands = {
        name: replace(spec, shape=shape, limit=size.limit or spec.limit)
        for (name, spec), shape in zip(default.operands.items(), size.shapes, strict=False)
    }
    output = size.shapes[0] if size.output is None else size.output
    parameters = size.parameters
    return replace(default, init=init, call=call, operands=operands, parameters=parameters, output=output)
