"""Concatenation and stacking."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .calls import ALL_BY_NAME, BY_POSITION, function, style
from .elementwise import OUT
from .expressions import Source, X
from .pooling import DATA
from .record import IMAGE, PAIR_BATCHED, Operator, SweepKind, fixed
from .space import BATCH, LAYOUT, LEFT_OUT, RESULT, SECOND, Factor, Pick, Space, Values, factor, one_range_is_usual
from .variant import Operand, Shape, Variant


def _joining() -> Iterator[Operator]:
    values: dict[str, Values] = {
        "three": {"form": (IMAGE, IMAGE, IMAGE), "dim": LEFT_OUT},
        "tuple": {"container": "tuple", "style": BY_POSITION},
        "last_dimension": {"dim": -1, "style": BY_POSITION},
        "same_tensor": {"form": (IMAGE,), "repeated": True},
        "formats": {"dim": LEFT_OUT, "second": Operand((), layout="channels_last")},
    }
    for short in ("cat", "concat", "concatenate", "stack"):
        space = _joining_space(f"torch.{short}")
        unequal = "" if short == "stack" else "unequal"
        names = f"default {unequal} three tuple last_dimension same_tensor single keyword batch0 batch1 channels_last"
        base = {"axis": "dim"} if short == "concatenate" else {}
        points = fixed(space, f"{names} formats positive negative", values, **base)
        sweep = SweepKind.MOVES if short in ("cat", "stack") else None
        counts = PAIR_BATCHED if short == "cat" else {}
        yield Operator(f"torch.{short}", space, points, counts=counts, sweep=sweep)


def _joining_space(operator: str) -> Space:
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

    default = "axis" if operator == "torch.concatenate" else "dim"

    def write(
        form: Any, style: str, dim: Any, container: str, repeated: bool, second: Operand, axis: str = default
    ) -> Variant:
        taken = dict(zip("xyz", (Operand(shape) for shape in form), strict=False))
        if "y" in taken:
            taken["y"] = replace(second, shape=taken["y"].shape)
        tensors = [*map(Source, taken), *([X] if repeated else [])]
        sequence = tensors if container == "list" else tuple(tensors)
        call = function(operator, {"tensors": sequence}, {axis: dim}, style)
        return Variant("", call, taken, output=form[0])

    dim = factor("dim", 1, 0, -1, -2, covers=("dim", "axis"), no_dim=LEFT_OUT)
    form = Factor("form", {"": (IMAGE, IMAGE), **shapes}, _joined, covers=("tensors",))
    container = factor("container", "list", covers=(), tuple="tuple")
    repeated = factor("repeated", False, covers=(), x_again=True)
    constraints = (
        lambda form, dim: len({*form}) == 1 or dim in (1, -3),
        lambda form, second: len(form) > 1 or second == Operand(()),
        lambda form, layout: layout != "channels_last" or len(form[0]) in (4, 5),
        one_range_is_usual,
    )
    factors = (dim, form, container, repeated, SECOND, style(positional=BY_POSITION, keyword=ALL_BY_NAME), DATA)
    return Space((*factors, BATCH, LAYOUT, RESULT), write, constraints, OUT)


def _joined(pick: Pick) -> tuple[Shape, ...]:
    shape: Shape = tuple(pick((1, 2, 3, 5, 8, 17, 33)) for _ in range(pick((2, 3, 4))))
    return (shape,) * int(pick((1, 2, 3)))


JOINING = [*_joining()]
