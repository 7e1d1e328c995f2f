"""Binary arithmetic, of tensors and of numbers, and products of matrices."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy

from conformance.configs.spelling import spelled

from .calls import ALL_BY_NAME, function, style
from .elementwise import LARGE, LENGTHS, NUMBERS, OUT, VECTOR, any_shape
from .expressions import Call, Source, X, Y
from .networks import sequences
from .record import EVERY_CODE, EVERY_PAIR, IMAGE, PAIR_BATCHED, Operator, SweepKind, fixed
from .space import (
    BATCH,
    DATA,
    LAYOUT,
    LEFT_OUT,
    RESULT,
    SECOND,
    Factor,
    Pick,
    Space,
    Values,
    factor,
    one_range_is_usual,
)
from .variant import Operand, Shape, Variant, operands


def _operand_pair(pick: Pick) -> tuple[Shape, Shape | None]:
    """Shapes of two operands, one of them maybe broadcast; the second is None if it is the first one again."""
    shape = any_shape(pick)
    kind = pick(("equal", "equal", "right", "left", "same"))
    if kind in ("equal", "same"):
        return shape, shape if kind == "equal" else None
    smaller = tuple(pick((1, length)) for length in shape)[pick(range(len(shape))) :]
    return (shape, smaller) if kind == "right" else (smaller, shape)


PAIRS = factor(
    "form",
    (IMAGE, IMAGE),
    covers=("input", "other"),
    drawn=_operand_pair,
    broadcast=(IMAGE, (4, 1, 1)),
    broadcast_left=((4, 1, 1), IMAGE),
    broadcast_both=((2, 1, 7, 5), (1, 4, 7, 1)),
    broadcast_single=(IMAGE, (1,)),
    same_tensor=(IMAGE, None),
    matrix=((5, 33), (5, 33)),
    volume=((2, 3, 4, 3, 5), (2, 3, 4, 3, 5)),
    beyond_a_grain=((3, 5, 47, 47), (3, 5, 47, 47)),
)
"""The shapes of two operands; the second is None where it is the first one again."""

SCALARS: dict[str, Any] = {
    "scalar": 0.5,
    "scalar_negative": -2.0,
    "scalar_integer": 2,
    "scalar_zero": 0.0,
}


def _binary_space(operator: str, sign: str, *options: Factor) -> Space:
    """The space of a binary operator of two tensors, or of a tensor and a number on either side.

    `other` is the name of the second tensor.
    """

    infix = spelled(operator).namespace == "operator"

    def write(form: Any, style: str, scalar: Any, second: Operand, other: str = "y", **values: Any) -> Variant:
        left, right = form
        expressions: list[Any] = [X, X if right is None else Source(other)]
        taken = operands(left)
        if right is not None and scalar is None:
            taken[other] = replace(second, shape=right)
        if scalar is not None:
            side, value = scalar
            expressions[side], expressions[1 - side] = value, X
        output = numpy.broadcast_shapes(left, left if right is None or scalar is not None else right)
        call = (
            Call(sign, expressions)
            if infix
            else function(operator, dict(zip(("input", "other"), expressions, strict=True)), values, style)
        )
        return Variant("", call, taken, output=output)

    styles = {} if infix else {"keyword": ALL_BY_NAME}
    scalars = factor(
        "scalar",
        None,
        covers=(),
        drawn=lambda pick: pick((None, None, (1, pick(NUMBERS)), (1, pick(range(-3, 7))))),
        **{name: (1, value) for name, value in SCALARS.items()},
        **({"scalar_left": (0, 1.5)} if infix else {}),
    )
    second = factor(
        "second",
        Operand(()),
        covers=(),
        other_scale=Operand((), exponent=-3),
        greater_scale=Operand((), exponent=2),
        other_zero_point=Operand((), exponent=-1, data="positive"),
        negative_zero_point=Operand((), data="negative"),
    )
    constraints = (
        lambda form, layout: layout != "channels_last" or any(shape and len(shape) in (4, 5) for shape in form),
        lambda form, scalar: scalar is None or form[0] == form[1],
        lambda scalar, second: scalar is None or second == Operand(()),
        lambda form, second: form[1] is not None or second == Operand(()),
        one_range_is_usual,
    )
    factors = (*options, PAIRS, scalars, second, style(**styles), DATA, BATCH, LAYOUT, RESULT)
    broadcasts = lambda form, batch: batch is None or (form[1] is None or len(form[0]) == len(form[1]))  # noqa: E731
    return Space(factors, write, (*constraints, broadcasts), {} if infix else OUT)


def _binary(name: str, sign: str) -> Iterator[Operator]:
    in_core = ["default", "batch0", "scalar", "other_scale", "other_zero_point", "same_tensor"]
    # after a ReLU, sums of negative numbers are zero, and the output has the least scale
    in_core += ["symmetric", "negative"] if name == "add" else []
    scalars = "scalar_negative scalar_integer" + (" scalar_zero scalar_tiny" if name == "mul" else "")
    names = (
        f"default scalar other_scale other_zero_point {'symmetric' if name == 'add' else ''} broadcast broadcast_left"
        f" broadcast_rows same_tensor reused large vector batch0 batch1 positive negative tiny huge {scalars}"
    )
    values: dict[str, Values] = {
        "symmetric": {"data": "symmetric"},
        "broadcast_rows": {"form": (IMAGE, (*IMAGE[:-1], 1))},
        "reused": {"result": "y, x", "other": "z"},
        "large": {"form": (LARGE["form"],) * 2},
        "vector": {"form": (VECTOR["form"],) * 2},
        # half of the least scale that a config may allow
        "scalar_tiny": {"scalar": (1, 0.5), "data": "tiny"},
    }
    sweeps: dict[str, Values] = {
        "every_pair": {"form": (EVERY_PAIR, EVERY_PAIR)},
        "every_code_scalar": {"form": (EVERY_CODE, EVERY_CODE), "scalar": (1, 0.5)},
        "every_code_same_tensor": {"form": (EVERY_CODE, None)},
    }
    alpha = [] if name == "mul" else [factor("alpha", LEFT_OUT, 2, -1, 0.5)]
    tall = (9, 18, 3)
    shapes: dict[str, Values] = {
        "repeated_18": {"form": ((2, *tall), (1, *tall))},
        "scalar_left_18": {"form": ((2, *tall), (2, *tall)), "scalar": (0, 0.5)},
    }
    counts = {**PAIR_BATCHED, **shapes} if name != "sub" else {}
    for operator, options, further in (
        (f"operator.{name}", [], "scalar_left"),
        (f"torch.{name}", alpha, f"keyword {'alpha_2' if alpha else ''}"),
    ):
        space = _binary_space(operator, sign, *options)
        points = fixed(space, f"{names} {further}", values)
        counted = counts if spelled(operator).namespace == "operator" else {}
        core = frozenset(in_core)
        yield Operator(operator, space, points, core, counts=counted, sweep=SweepKind.PAIRS, sweeps=sweeps)


MATRICES = factor(
    "form",
    ((2, 4, 5), (2, 5, 3)),
    covers=("input", "other"),
    drawn=lambda pick: _matrices(pick),
    matrices=((4, 5), (5, 3)),
    large=((33, 64), (64, 48)),
    rank4=((2, 3, 4, 5), (2, 3, 5, 2)),
    broadcast=((2, 4, 5), (5, 3)),
    broadcast_left=((4, 5), (2, 5, 3)),
    vector=((4, 5), (5,)),
    vector_left=((5,), (5, 3)),
    dot=((5,), (5,)),
    same_tensor=((4, 4), None),
    long=((3, 257), (257, 2)),
    single=((1, 1), (1, 1)),
)


def _matrices(pick: Pick) -> tuple[Shape, Shape]:
    rows, inner, columns = (pick([n for n in LENGTHS if n < 70]) for _ in range(3))
    leading = tuple(pick((1, 2, 3)) for _ in range(pick((0, 1, 2))))
    return (*leading, rows, inner), (*pick((leading, ())), inner, columns)


def _matmul() -> Operator:
    def write(form: Any, style: str, second: Operand) -> Variant:
        left, right = form
        taken = operands(left) if right is None else {**operands(left), "y": replace(second, shape=right)}
        expressions = {"input": X, "other": X if right is None else Y}
        other = right or left
        columns = other[-1:] if len(other) > 1 else ()
        # torch's own imports sympy
        output = (*numpy.broadcast_shapes(left[:-2], other[:-2]), *left[-2:-1], *columns)
        return Variant("", function("torch.matmul", expressions, {}, style), taken, output=output)

    constraints = (
        lambda form, second: form[1] is not None or second == Operand(()),
        lambda form, layout: layout != "channels_last" or len(form[0]) == 4,
        one_range_is_usual,
    )
    factors = (MATRICES, SECOND, style(keyword=ALL_BY_NAME), DATA, LAYOUT, RESULT)
    space = Space(factors, write, constraints, OUT)
    names = "default matrices large rank4 broadcast vector dot other_scale other_zero_point keyword same_tensor"
    points = fixed(space, f"{names} positive negative tiny huge")
    large = {"form": ((8, 37, 67), (8, 67, 41))}
    return Operator("torch.matmul", space, points, frozenset({"default"}), large=large, layers=sequences("attention"))


ARITHMETIC = [*_binary("add", "+"), *_binary("sub", "-"), *_binary("mul", "*"), _matmul()]
