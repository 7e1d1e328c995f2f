"""Reductions and views, whose output shares its input's qparams."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from conformance.configs.spelling import spelled

from .calls import ALL_BY_NAME, BY_NAME, BY_POSITION, EACH_BY_NAME, arguments, function, style
from .elementwise import IN_NETWORK, OUT
from .expressions import Call, Source, X
from .networks import images
from .pooling import DATA, each_dimension, space_of, usual
from .record import BATCHED, IMAGE, LARGE, Operator, SweepKind, fixed
from .space import (
    BATCH,
    LAYOUT,
    LEFT_OUT,
    RESULT,
    Factor,
    Pick,
    Space,
    Values,
    batches,
    factor,
    images_have_formats,
)
from .variant import Operand, Shape, Variant


def _several_dimensions(pick: Pick) -> Shape:
    """A shape of two to five dimensions."""
    return tuple(pick((1, 1, 2, 3, 4, 5, 8, 17)) for _ in range(pick((2, 3, 4, 4, 4, 5))))


def _dim_exists(form: Any, dim: Any) -> bool:
    return dim is LEFT_OUT or -len(form) <= dim < len(form)


def _dims_exist(form: Any, dim0: int, dim1: int) -> bool:
    return _dim_exists(form, dim0) and _dim_exists(form, dim1)


def _dim_can_be_added(form: Any, dim: int) -> bool:
    return -len(form) - 1 <= dim <= len(form)


RANKS = factor(
    "form",
    IMAGE,
    covers=("input", "self"),
    matrix=(4, 35),
    rank3=(4, 7, 5),
    volume=(2, 3, 4, 5, 3),
    many_channels=(1, 65, 3, 4),
)
"""Shapes of tensors of two to five dimensions, the second of which is at least 3 long."""


Named = Mapping[str, Values]

NONE: Mapping[str, Any] = {}


def _in_sizes(values: Callable[[Shape], Values]) -> Mapping[str, Any]:
    """The sizes of an operator whose arguments depend on the shape of the image."""
    return {"large": values(LARGE), "layers": images(values)}


def _view(
    operator: str,
    space: Space,
    values: Named = NONE,
    *,
    names: str = "",
    sweep: SweepKind | None = None,
    by_keyword: bool = True,
    sizes: Mapping[str, Any] = NONE,
    **base: object,
) -> Operator:
    """An operator with fixed variants: those of `values` that `names` do not name come first, then the usual ones."""
    first = " ".join(name for name in values if name not in names.split())
    keyword = "keyword" if by_keyword and "keyword" in space.factor_of and "keyword" not in names else ""
    points = fixed(space, f"default {first} {usual()} {keyword} {names}", values, **base)
    return Operator(operator, space, points, sweep=sweep, **sizes)


def _means() -> Iterator[Operator]:
    dims = {
        "dim_1": 1,
        "dim_last": -1,
        "dim_0": 0,
        "dim_two": (1, 2),
        "dim_two_negative": (-1, -2),
        "dim_first_and_third": (0, 2),
        "dim_list": [1],
        "no_dim": LEFT_OUT,
    }
    stated: dict[str, Values] = {
        "1": {"dim": 1},
        "-1": {"dim": -1},
        "2_3_keepdim_True": {"keepdim": True},
        "dim_2_3": {"style": EACH_BY_NAME},
        "dim_1_keepdim_True": {"dim": 1, "keepdim": True, "style": EACH_BY_NAME},
        "dim_1_2_3": {"dim": (1, 2, 3), "style": EACH_BY_NAME},
        "0_2": {"dim": (0, 2)},
        "no_arguments": {"dim": LEFT_OUT},
        "2_3_volume": {"form": (2, 3, 4, 5, 3)},
    }
    # in channels-last format the last dimension is not the innermost one in memory
    laid: dict[str, Values] = {
        f"{name}_channels_last": {**stated[name], "layout": "channels_last"}
        for name in ("-1", "dim_1_2_3", "no_arguments")
    }
    # the memory format of an image with a single element in each channel is ambiguous
    laid["spread_strided"] = {"form": (2, 4, 1, 1), "layout": "strided"}
    further = f"2_3_volume {' '.join(laid)}"
    for operator, names in (("torch.mean", f"no_arguments {further}"), ("Tensor.mean", further)):
        dim = Factor("dim", {"": (2, 3), **dims})
        keepdim = factor("keepdim", LEFT_OUT, True)
        constraints = (
            lambda form, dim: dim is LEFT_OUT or all(-len(form) <= d < len(form) for d in each_dimension(dim, 1)),
            lambda dim, keepdim: dim is not LEFT_OUT or keepdim is LEFT_OUT,
        )
        form = factor(
            "form",
            IMAGE,
            covers=("input", "self"),
            drawn=_several_dimensions,
            rank3=(4, 7, 5),
            volume=(2, 3, 4, 5, 3),
            many_channels=(1, 65, 3, 4),
            spread=(2, 4, 1, 1),
            long=(2, 3, 19, 17),
        )
        left_out = {"dtype": "quantized tensors have one"}
        # the dimensions are passed by position, as in nearly all code
        space = space_of(operator, form, dim, keepdim, required=1, constraints=constraints, left_out=left_out)
        counted = {"counts": BATCHED} if operator == "torch.mean" else {}
        yield _view(operator, space, {**stated, **laid}, names=names, sizes=counted)


def _views() -> Iterator[Operator]:
    start = factor("start_dim", LEFT_OUT, 0, 2, -2)
    end = factor("end_dim", LEFT_OUT, 2, -2)
    ordered = (lambda form, start_dim, end_dim: _ordered(len(form), start_dim, end_dim),)
    position: dict[str, Any] = {"style": BY_POSITION}
    flattened: dict[str, Values] = {
        "0": {"start_dim": 0, **position},
        "2": {"start_dim": 2, **position},
        "start_dim_1_end_dim_2": {"start_dim": 1, "end_dim": 2},
    }
    space = space_of("nn.Flatten", RANKS, start, end, constraints=ordered)
    yield _view("nn.Flatten", space, flattened, sweep=SweepKind.MOVES)
    flattened = {
        "0": {"start_dim": 0, **position},
        "2_3": {"start_dim": 2, "end_dim": 3, **position},
        "start_dim_1": {"style": BY_NAME},
    }
    space = space_of("torch.flatten", RANKS, start, end, constraints=ordered)
    yield _view("torch.flatten", space, flattened, sweep=SweepKind.MOVES, start_dim=1, **position)
    yield from _means()
    for prefix in ("torch", "Tensor"):
        yield from _along_dimensions(prefix)
        squeezable = factor(
            "form", (2, 1, 5, 1), covers=("input", "self"), rank3=(3, 1, 5), volume=(2, 1, 3, 1, 2), kept=(2, 3, 5, 4)
        )
        removed = factor("dim", 1, -1, 0, dim_two=(1, -1), no_dim=LEFT_OUT)
        values: dict[str, Values] = {
            "-1": {"dim": -1},
            "dim_1": {"style": EACH_BY_NAME},
            "0": {"dim": 0},
            "1_-1": {"dim": (1, -1)},
            "nothing": {"form": IMAGE},
        }
        names = f"nothing {'keyword' if prefix == 'torch' else ''}"
        squeezed = {"large": {"form": (8, 1, 9581, 1)}, "layers": images(_squeezed)}
        space = space_of(f"{prefix}.squeeze", squeezable, removed, required=1)
        yield _view(f"{prefix}.squeeze", space, values, names=names, sweep=SweepKind.MOVES, sizes=squeezed)
    space = space_of("Tensor.squeeze_", squeezable, removed, required=1)
    values = {"-1": {"dim": -1}, "dim_1": {"style": EACH_BY_NAME}, "no_arguments": {"dim": LEFT_OUT}}
    yield _view("Tensor.squeeze_", space, values, sweep=SweepKind.MOVES, sizes=squeezed)
    divisors: dict[str, Values] = {"0.5": {"divisor": 0.5}, "2.0": {"divisor": 2.0}}
    yield _view("operator.floordiv", _floor_division(), divisors)
    yield from _without_options()
    yield from _queries()
    yield from _whole_shapes()


def _squeezed(shape: Shape) -> Values:
    return {"form": (shape[0], 1, math.prod(shape[1:]), 1)}


def _along_dimensions(prefix: str) -> Iterator[Operator]:
    narrow = (
        factor("dim", 1, 0, -1, 2, covers=("dim", "dimension")),
        factor("start", 1, 0, 2),
        factor("length", 2, 1),
    )
    space = space_of(f"{prefix}.narrow", RANKS, *narrow, required=3, constraints=(_inside,))
    values: dict[str, Values] = {
        "2_0_3": {"dim": 2, "start": 0, "length": 3},
        "-1_2_3": {"dim": -1, "start": 2, "length": 3},
    }
    sizes: dict[str, Any] = {}
    if prefix == "torch":
        sizes = {
            "large": {"form": LARGE, "start": 5, "length": 41},
            "layers": images(lambda shape: {"form": shape, "start": 64, "length": 128}),
        }
    yield _view(f"{prefix}.narrow", space, values, sweep=SweepKind.MOVES if prefix == "torch" else None, sizes=sizes)
    repeats = factor("repeats", 2, 3, 1), factor("dim", LEFT_OUT, 0, 1, -1)
    space = space_of(
        f"{prefix}.repeat_interleave",
        RANKS,
        *repeats,
        required=1,
        constraints=(_dim_exists,),
        left_out={"output_size": "avoids a synchronization of other devices"},
    )
    values = {"2_dim_1": {"dim": 1}, "repeats_3_dim_0": {"repeats": 3, "dim": 0, "style": EACH_BY_NAME}}
    yield _view(f"{prefix}.repeat_interleave", space, values, sweep=SweepKind.MOVES)
    swapped = factor("dim0", 1, 0, -1), factor("dim1", 2, -1, 1, -2)
    space = space_of(f"{prefix}.transpose", RANKS, *swapped, required=2, constraints=(_dims_exist,))
    values = {
        "0_1": {"dim0": 0, "dim1": 1},
        "-1_-2": {"dim0": -1, "dim1": -2},
        "1_1": {"dim1": 1},
        "dim0_1_dim1_3": {"dim1": 3, "style": EACH_BY_NAME},
    }
    yield _view(f"{prefix}.transpose", space, values, sweep=SweepKind.MOVES)
    added = factor("dim", 1, 0, -1, 2)
    values = {"0": {"dim": 0}, "-1": {"dim": -1}, "dim_2": {"dim": 2, "style": EACH_BY_NAME}}
    for operator in (f"{prefix}.unsqueeze", f"{prefix}.unsqueeze_"):
        space = space_of(operator, RANKS, added, required=1, constraints=(_dim_can_be_added,))
        sweep = None if operator == "torch.unsqueeze_" else SweepKind.MOVES
        yield _view(operator, space, values, by_keyword=not operator.endswith("_"), sweep=sweep)


def _without_options() -> Iterator[Operator]:
    for operator in ("torch.detach", "torch.detach_", "Tensor.detach", "Tensor.detach_"):
        sweep = SweepKind.CODES if spelled(operator).namespace == "Tensor" else None
        yield _view(operator, space_of(operator, RANKS), by_keyword=False, sweep=sweep)
    last = Source("torch.channels_last")
    formats = factor("memory_format", LEFT_OUT, memory_format_channels_last=last)
    images_only = (lambda form, memory_format: memory_format is LEFT_OUT or len(form) == 4,)
    space = space_of("Tensor.contiguous", RANKS, formats, constraints=images_only)
    values: Named = {"memory_format_torch.channels_last": {"memory_format": last}}
    yield _view("Tensor.contiguous", space, values, sweep=SweepKind.CODES)


def _floor_division() -> Space:
    def write(form: Any, divisor: float) -> Variant:
        return Variant("", Call("//", (X, divisor)), {"x": Operand(form)}, output=form)

    divisor = factor("divisor", 2, 0.5, 2.0, -1)
    return Space((divisor, RANKS, DATA, BATCH, LAYOUT, RESULT), write, (images_have_formats,))


def _queries() -> Iterator[Operator]:
    """Operators whose result is a number: a view takes it."""
    index = factor("dim", 0, -4, covers=("dim",))
    for operator in ("Tensor.size", "Tensor.shape"):

        def write(form: Any, dim: int, style: str, rest: int = 140, operator: str = operator) -> Variant:
            sized = Call("x.size", *arguments({"dim": dim}, style, 1))
            query = sized if operator == "Tensor.size" else Source(f"x.shape[{dim}]")
            return Variant("", Call("x.reshape", (query, rest)), {"x": Operand(form)}, output=form)

        styles = style(keyword=ALL_BY_NAME) if operator == "Tensor.size" else style()
        forms = factor("form", IMAGE, covers=("input",), matrix=(3, 140), rank3=(3, 4, 35), volume=(2, 2, 5, 7, 2))
        first = lambda form, dim: dim == 0 or len(form) == 4  # noqa: E731
        factors = (index, forms, styles, DATA, BATCH, LAYOUT, RESULT)
        space = Space(factors, write, (first, images_have_formats))
        values: dict[str, Values] = {"dim_0": {"style": ALL_BY_NAME}} if operator == "Tensor.size" else {}
        sizes = _in_sizes(lambda shape: {"form": shape, "rest": math.prod(shape[1:])})
        network = {**values, "in_network": IN_NETWORK}
        yield _view(operator, space, network, names="in_network", by_keyword=False, sizes=sizes)


def _inside(form: Any, dim: int, start: int, length: int) -> bool:
    return -len(form) <= dim < len(form) and bool(start + length <= form[dim])


def _ordered(rank: int, start: Any, end: Any) -> bool:
    first = (1 if start is LEFT_OUT else start) % rank
    last = (-1 if end is LEFT_OUT else end) % rank
    return first <= last and all(one is LEFT_OUT or -rank <= one < rank for one in (start, end))


def _whole_shapes() -> Iterator[Operator]:
    """Operators whose arguments state the whole shape: it has to fit that of the operand, so that does not vary."""
    image = factor("form", IMAGE, covers=("input", "self"))
    orders = {
        "reversed": (3, 2, 1, 0),
        "as_it_is": (0, 1, 2, 3),
        "from_the_end": (0, -1, 1, 2),
        "transposed": (1, 0, 3, 2),
    }
    reversed_: Named = {"3_2_1_0": {"dims": (3, 2, 1, 0)}}
    for operator in ("torch.permute", "torch.permute_copy", "Tensor.permute"):
        space = _stating(operator, image, "dims", (0, 2, 3, 1), orders, starred=operator == "Tensor.permute")
        copies = operator == "torch.permute_copy"
        yield _view(operator, space, {} if copies else reversed_, sweep=None if copies else SweepKind.MOVES)
    shapes: dict[str, Any] = {"flat": (-1,), "split": (-1, 5), "halves": (4, -1), "more": (-1, 2, 2, 7, 5)}
    first = Source("x.shape[0]")
    sizes = _in_sizes(lambda shape: {"form": shape, "shape": (first, math.prod(shape[1:]) // shape[-1], shape[-1])})
    values: dict[str, Values] = {"-1": {"shape": (-1,)}, "4_-1": {"shape": (4, -1)}}
    network = {"in_network": IN_NETWORK}  # torch's default mappings give a reshape the qparams of its input
    space = _stating("torch.reshape", image, "shape", (first, 20, 7), shapes)
    yield _view("torch.reshape", space, {**values, **network}, names="in_network", sizes=sizes)
    values["4_-1"] = {"shape": (4, -1), "style": "sequence"}
    space = _stating("Tensor.reshape", image, "shape", (first, 20, 7), shapes, starred=True)
    yield _view("Tensor.reshape", space, {**values, **network}, names="in_network", sweep=SweepKind.MOVES, sizes=sizes)
    space = _stating("Tensor.view", image, "shape", (first, 20, 7), shapes, starred=True)
    names = "default -1 4_-1 batch0 batch1 positive negative"
    yield Operator("Tensor.view", space, fixed(space, names, values), sweep=SweepKind.MOVES, **sizes)
    counts = {"outer": (2, 1, 1, 1), "more": (2, 1, 1, 1, 1), "nothing": (1, 1, 1, 1), "inner": (1, 1, 1, 3)}
    space = _stating("Tensor.repeat", image, "repeats", (1, 2, 1, 1), counts, starred=True)
    yield _view("Tensor.repeat", space, {"2_1_1_1_1": {"repeats": (2, 1, 1, 1, 1)}}, sweep=SweepKind.MOVES)
    resized = {"matrix": (4, 70), "elements": (2, 4, 7, 5)}
    space = _stating("Tensor.resize_", image, "sizes", (2, 4, 35), resized, starred=True)
    points = fixed(space, "default 4_70 positive negative channels_last", {"4_70": {"sizes": (4, 70)}})
    sizes = _in_sizes(lambda shape: {"form": shape, "sizes": (*shape[:2], math.prod(shape[2:]))})
    yield Operator("Tensor.resize_", space, points, sweep=SweepKind.MOVES, **sizes)


def _stating(
    operator: str, form: Factor, name: str, default: Any, others: dict[str, Any], *, starred: bool = False
) -> Space:
    """An operator of one option, which is a sequence; `starred` methods take its elements as arguments of their own, too."""
    kind, _, short = operator.partition(".")

    def write(form: Any, style: str, **values: Any) -> Variant:
        elements = values[name]
        if kind == "Tensor":
            call = Call(f"x.{short}", [elements] if style == "sequence" else elements)
        else:
            call = function(operator, {"input": X}, {name: elements}, style, 1)
        return Variant("", call, {"x": Operand(form)}, output=form)

    styles = style("elements", sequence="sequence") if starred else style(keyword=ALL_BY_NAME)
    chosen = Factor(name, {"": default, **others}, covers=(name, "shape", "sizes"))
    # a channels-last or strided tensor has no such view
    layout = factor("layout", "contiguous", covers=()) if short == "view" else LAYOUT
    left_out = {"memory_format": "changes strides only"} if short == "resize_" else {}
    if name == "repeats" or name == "dims":
        batch = BATCH
    elif short == "resize_":  # the rest of a greater result is whatever memory holds
        batch = batches()
    else:
        batch = batches(1, 4)  # -1 is ambiguous for an empty batch
    factors = (chosen, form, styles, DATA, batch, layout, RESULT)
    return Space(factors, write, (images_have_formats,), OUT if kind == "torch" else left_out)


VIEWS = [*_views()]
