"""Option spaces of reductions, views and joining, whose output shares its input's qparams."""

from collections.abc import Iterator
from typing import Any

from conformance.cases.operators import Operand, Shape, Variant
from conformance.cases.operators.elementwise import IMAGE

from .calls import ALL_BY_NAME, BY_POSITION, function, style
from .elementwise import OUT
from .pooling import DATA, called, each_dimension
from .space import LAYOUT, LEFT_OUT, RESULT, Factor, Pick, Source, Space, batches, factor, images_have_formats


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


def _mean() -> Iterator[tuple[str, Space]]:
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
    for operator in ("torch.mean", "Tensor.mean"):
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
        yield operator, called(operator, form, dim, keepdim, required=1, constraints=constraints, left_out=left_out)


def _view_spaces() -> Iterator[tuple[str, Space]]:
    start = factor("start_dim", LEFT_OUT, 0, 2, -2)
    end = factor("end_dim", LEFT_OUT, 2, -2)
    ordered = (lambda form, start_dim, end_dim: _ordered(len(form), start_dim, end_dim),)
    for operator in ("nn.Flatten", "torch.flatten"):
        yield operator, called(operator, RANKS, start, end, constraints=ordered)
    yield from _mean()
    for prefix in ("torch", "Tensor"):
        narrow = (
            factor("dim", 1, 0, -1, 2, covers=("dim", "dimension")),
            factor("start", 1, 0, 2),
            factor("length", 2, 1),
        )
        yield f"{prefix}.narrow", called(f"{prefix}.narrow", RANKS, *narrow, required=3, constraints=(_inside,))
        repeats = factor("repeats", 2, 3, 1), factor("dim", LEFT_OUT, 0, 1, -1)
        yield (
            f"{prefix}.repeat_interleave",
            called(
                f"{prefix}.repeat_interleave",
                RANKS,
                *repeats,
                required=1,
                constraints=(_dim_exists,),
                left_out={"output_size": "avoids a synchronization of other devices"},
            ),
        )
        swapped = factor("dim0", 1, 0, -1), factor("dim1", 2, -1, 1, -2)
        yield (
            f"{prefix}.transpose",
            called(f"{prefix}.transpose", RANKS, *swapped, required=2, constraints=(_dims_exist,)),
        )
        added = factor("dim", 1, 0, -1, 2)
        for operator in (f"{prefix}.unsqueeze", f"{prefix}.unsqueeze_"):
            yield operator, called(operator, RANKS, added, required=1, constraints=(_dim_can_be_added,))
        squeezable = factor(
            "form", (2, 1, 5, 1), covers=("input", "self"), rank3=(3, 1, 5), volume=(2, 1, 3, 1, 2), kept=(2, 3, 5, 4)
        )
        removed = factor("dim", 1, -1, 0, dim_two=(1, -1), no_dim=LEFT_OUT)
        yield f"{prefix}.squeeze", called(f"{prefix}.squeeze", squeezable, removed, required=1)
    yield "Tensor.squeeze_", called("Tensor.squeeze_", squeezable, removed, required=1)
    yield "operator.floordiv", _floor_division()
    yield from _without_options()
    yield from _queries()
    yield from _whole_shapes()


def _without_options() -> Iterator[tuple[str, Space]]:
    for operator in ("torch.detach", "torch.detach_", "Tensor.detach", "Tensor.detach_"):
        yield operator, called(operator, RANKS)
    formats = factor("memory_format", LEFT_OUT, memory_format_channels_last=Source("torch.channels_last"))
    yield (
        "Tensor.contiguous",
        called(
            "Tensor.contiguous",
            RANKS,
            formats,
            constraints=(lambda form, memory_format: memory_format is LEFT_OUT or len(form) == 4,),
        ),
    )


def _floor_division() -> Space:
    def write(form: Any, divisor: float) -> Variant:
        return Variant("", f"x // {divisor!r}", {"x": Operand(form)}, output=form)

    divisor = factor("divisor", 2, 0.5, 2.0, -1)
    return Space((divisor, RANKS, DATA, batches(0, 1, 5), LAYOUT, RESULT), write, (images_have_formats,))


def _queries() -> Iterator[tuple[str, Space]]:
    """Operators whose result is a number: a view takes it."""
    index = factor("dim", 0, -4, covers=("dim",))
    for operator, text in (("Tensor.size", "x.size({dim})"), ("Tensor.shape", "x.shape[{dim}]")):

        def write(form: Any, dim: int, style: str, text: str = text) -> Variant:
            query = text.format(dim=f"dim={dim}" if style == ALL_BY_NAME else dim)
            return Variant("", f"x.reshape({query}, 140)", {"x": Operand(form)}, output=form)

        styles = style(keyword=ALL_BY_NAME) if operator == "Tensor.size" else style()
        images = factor("form", IMAGE, covers=("input",), matrix=(3, 140), rank3=(3, 4, 35), volume=(2, 2, 5, 7, 2))
        first = lambda form, dim: dim == 0 or len(form) == 4  # noqa: E731
        factors = (index, images, styles, DATA, batches(0, 1, 5), LAYOUT, RESULT)
        yield operator, Space(factors, write, (first, images_have_formats))


def _inside(form: Any, dim: int, start: int, length: int) -> bool:
    return -len(form) <= dim < len(form) and bool(start + length <= form[dim])


def _ordered(rank: int, start: Any, end: Any) -> bool:
    first = (1 if start is LEFT_OUT else start) % rank
    last = (-1 if end is LEFT_OUT else end) % rank
    return first <= last and all(one is LEFT_OUT or -rank <= one < rank for one in (start, end))


def _whole_shapes() -> Iterator[tuple[str, Space]]:
    """Operators whose arguments state the whole shape: it has to fit that of the operand, so that does not vary."""
    images = factor("form", IMAGE, covers=("input", "self"))
    orders = {
        "reversed": (3, 2, 1, 0),
        "as_it_is": (0, 1, 2, 3),
        "from_the_end": (0, -1, 1, 2),
        "transposed": (1, 0, 3, 2),
    }
    for operator in ("torch.permute", "torch.permute_copy"):
        yield operator, _stating(operator, images, "dims", (0, 2, 3, 1), orders)
    yield "Tensor.permute", _stating("Tensor.permute", images, "dims", (0, 2, 3, 1), orders, starred=True)
    shapes: dict[str, Any] = {"flat": (-1,), "split": (-1, 5), "halves": (4, -1), "more": (-1, 2, 2, 7, 5)}
    queried = (Source("x.shape[0]"), 20, 7)
    yield "torch.reshape", _stating("torch.reshape", images, "shape", queried, shapes)
    for name in ("reshape", "view"):
        yield f"Tensor.{name}", _stating(f"Tensor.{name}", images, "shape", queried, shapes, starred=True)
    counts = {"outer": (2, 1, 1, 1), "more": (2, 1, 1, 1, 1), "nothing": (1, 1, 1, 1), "inner": (1, 1, 1, 3)}
    yield "Tensor.repeat", _stating("Tensor.repeat", images, "repeats", (1, 2, 1, 1), counts, starred=True)
    resized = {"matrix": (4, 70), "elements": (2, 4, 7, 5)}
    yield "Tensor.resize_", _stating("Tensor.resize_", images, "sizes", (2, 4, 35), resized, starred=True)


def _stating(
    operator: str, form: Factor, name: str, default: Any, others: dict[str, Any], *, starred: bool = False
) -> Space:
    """An operator of one option, which is a sequence; `starred` methods take its elements as arguments of their own, too."""
    kind, _, short = operator.partition(".")

    def write(form: Any, style: str, **values: Any) -> Variant:
        elements = values[name]
        text = ", ".join(map(repr, elements))
        whole = f"({text}{',' * (len(elements) == 1)})"
        if kind == "Tensor":
            call = f"x.{short}({whole if style == 'sequence' else text})"
        else:
            call = function(operator, {"input": "x"}, {name: Source(whole)}, style, 1)
        return Variant("", call, {"x": Operand(form)}, output=form)

    styles = style("elements", sequence="sequence") if starred else style(keyword=ALL_BY_NAME)
    chosen = Factor(name, {"": default, **others}, covers=(name, "shape", "sizes"))
    # a channels-last or strided tensor has no such view
    layout = factor("layout", "contiguous", covers=()) if short == "view" else LAYOUT
    left_out = {"memory_format": "changes strides only"} if short == "resize_" else {}
    if name == "repeats" or name == "dims":
        batch = batches(0, 1, 5)
    elif short == "resize_":  # the rest of a greater result is whatever memory holds
        batch = batches()
    else:
        batch = batches(1, 4)  # -1 is ambiguous for an empty batch
    factors = (chosen, form, styles, DATA, batch, layout, RESULT)
    return Space(factors, write, (images_have_formats,), OUT if kind == "torch" else left_out)


def _joining_spaces() -> Iterator[tuple[str, Space]]:
    for short in ("cat", "concat", "concatenate", "stack"):
        yield f"torch.{short}", _joining(f"torch.{short}")


def _joining(operator: str) -> Space:
    shapes: dict[str, Any] = {
        "single": (IMAGE,),
        "three": (IMAGE, IMAGE, IMAGE),
        "matrices": ((5, 33), (5, 33)),
        "volumes": ((2, 3, 2, 3, 2),) * 2,
        "many_channels": ((1, 65, 3, 2), (1, 65, 3, 2)),
        "beyond_a_grain": ((3, 5, 37, 37),) * 2,
    }
    if operator != "torch.stack":
        shapes |= {"unequal": (IMAGE, (2, 3, 7, 5))}

    def write(form: Any, style: str, dim: Any, container: str, repeated: bool, second: Operand) -> Variant:
        taken = dict(zip("xyz", (Operand(shape) for shape in form), strict=False))
        if "y" in taken:
            taken["y"] = Operand(taken["y"].shape, exponent=second.exponent, data=second.data)
        names = [*taken, *(["x"] if repeated else [])]
        text = ", ".join(names)
        sequence = f"[{text}]" if container == "list" else f"({text}{',' * (len(names) == 1)})"
        call = function(operator, {"tensors": sequence}, {axis: dim}, style, 0)
        return Variant("", call, taken, output=form[0])

    axis = "axis" if operator == "torch.concatenate" else "dim"
    dim = factor("dim", 1, 0, -1, -2, covers=("dim", "axis"), no_dim=LEFT_OUT)
    form = Factor("form", {"": (IMAGE, IMAGE), **shapes}, _joined, covers=("tensors",))
    container = factor("container", "list", covers=(), tuple="tuple")
    repeated = factor("repeated", False, covers=(), x_again=True)
    second = factor(
        "second",
        Operand(()),
        covers=(),
        other_scale=Operand((), exponent=-3),
        other_zero_point=Operand((), data="positive"),
    )
    constraints = (
        lambda form, dim: len({*form}) == 1 or dim in (1, -3),
        lambda form, second: len(form) > 1 or second == Operand(()),
        lambda form, layout: layout != "channels_last" or len(form[0]) in (4, 5),
        lambda data, second: data == "full" or not second.data,
    )
    factors = (dim, form, container, repeated, second, style(positional=BY_POSITION, keyword=ALL_BY_NAME), DATA)
    return Space((*factors, batches(0, 1, 5), LAYOUT, RESULT), write, constraints, OUT)


def _joined(pick: Pick) -> tuple[Shape, ...]:
    shape: Shape = tuple(pick((1, 2, 3, 5, 8, 17, 33)) for _ in range(pick((2, 3, 4))))
    return (shape,) * int(pick((1, 2, 3)))


VIEWS = dict([*_view_spaces(), *_joining_spaces()])
