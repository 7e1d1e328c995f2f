"""Option spaces of activation functions, fixed-qparams functions, dropout and binary arithmetic."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy

from conformance.cases.operators import Operand, Shape, Variant
from conformance.cases.operators.elementwise import IMAGE, WIDE_INPUT
from conformance.cases.operators.variant import operands

from .calls import ALL_BY_NAME, BY_POSITION, TWICE, function, sources, style
from .space import DATA, LAYOUT, LEFT_OUT, RESULT, Factor, Pick, Space, batches, data, factor, images_have_formats

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 256, 257)
"""Sizes around the widths of vector registers and tiles of kernels."""

MOST_ELEMENTS = 10_000
"""Most elements of an operand whose shape is drawn."""

IGNORED = dict.fromkeys(("args", "kwargs"), "accepted and ignored")
OUT = {"out": "an output that is given is not quantized"}


def any_shape(pick: Pick) -> Shape:
    """A shape of up to five dimensions."""
    shape: Shape = ()
    for _ in range(pick((1, 2, 2, 3, 4, 4, 4, 5))):
        room = MOST_ELEMENTS // math.prod(shape)
        shape += (pick([length for length in LENGTHS if length <= room]),)
    return shape


FORM = factor(
    "form",
    IMAGE,
    covers=("input", "x", "self"),
    drawn=any_shape,
    vector=(3,),
    matrix=(5, 33),
    many_channels=(1, 129, 3, 2),
    volume=(2, 3, 4, 3, 5),
    beyond_a_grain=(3, 5, 47, 47),
)
"""The shape of an operand: up to more elements than one thread takes at once (32,768)."""

NUMBERS = (-6.0, -2.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 2.0, 6.0)
"""Numbers that a drawn option may be: of a continuous range, some on each side of zero, and those of networks."""


def number(name: str, *values: float, drawn: Any = None) -> Factor:
    """An option that is a number, left out by default."""
    return factor(name, LEFT_OUT, *values, drawn=drawn or [LEFT_OUT, *values, *NUMBERS])


INPLACE = factor("inplace", LEFT_OUT, inplace=True)


def _something_is_left(inplace: Any, result: str) -> bool:
    """An operator in place leaves nothing of its input that the model could return."""
    return inplace is LEFT_OUT or result == "y"


def unary(
    operator: str,
    *options: Factor,
    constraints: tuple[Callable[..., bool], ...] = (),
    left_out: dict[str, str] | None = None,
    twice: bool = True,
) -> Space:
    """The space of a function of one tensor as module, function or method."""
    names = [option.name for option in options]
    kind = operator.partition(".")[0]
    styles = {"keyword": ALL_BY_NAME} if kind != "Tensor" else {}
    if names:
        styles["positional"] = BY_POSITION
    if kind == "nn" and twice:
        styles["called_twice"] = TWICE

    def write(form: Any, style: str, **values: Any) -> Variant:
        source = sources(operator, {name: values[name] for name in names}, style)
        return Variant("", operands={"x": Operand(form)}, output=form, applications=1 + (style == TWICE), **source)

    factors = (*options, FORM, style(**styles), DATA, batches(0, 1, 5), LAYOUT, RESULT)
    if INPLACE in options:
        constraints = (*constraints, _something_is_left)
    extra = OUT if kind == "torch" else {}
    return Space(factors, write, (images_have_formats, *constraints), {**extra, **(left_out or {})})


def _in_network(space: Space, ranges: Factor) -> Space:
    """The space of a fixed-qparams function: its input has the fixed grid, or that of an operator before it."""

    def write(prelude: str, **values: Any) -> Variant:
        return replace(space.write(**values), prelude=prelude)

    def range_of_prelude(prelude: str, data: str) -> bool:
        return bool(prelude) == (data == "full")

    factors = [ranges if one.name == "data" else one for one in space.factors]
    prelude = factor("prelude", "", covers=(), after_hardtanh=WIDE_INPUT)
    return Space((*factors, prelude), write, (*space.constraints, range_of_prelude), space.left_out)


def _fixed_spaces() -> Iterator[tuple[str, Space]]:
    for name, titled in (("hardsigmoid", "nn.Hardsigmoid"), ("sigmoid", "nn.Sigmoid"), ("tanh", "nn.Tanh")):
        ranges = data("signed_unit" if name == "tanh" else "unit", "full")
        inplace = [INPLACE] if name == "hardsigmoid" else []
        prefix = "F" if name == "hardsigmoid" else "torch"
        for operator in (titled, f"{prefix}.{name}", f"Tensor.{name}", f"Tensor.{name}_"):
            options = [] if operator.startswith("Tensor.") else inplace
            ignored = IGNORED if operator in ("nn.Sigmoid", "nn.Tanh") else {}
            yield operator, _in_network(unary(operator, *options, twice=False, left_out=ignored), ranges)
    dim = factor("dim", 1, -1, 0, -2, drawn=range(-4, 4))
    softmax = unary("nn.Softmax", dim, constraints=(lambda form, dim: -len(form) <= dim < len(form),), twice=False)
    yield "nn.Softmax", _in_network(softmax, data("unit", "full"))


def _in_order(min_val: Any, max_val: Any) -> bool:
    low, high = (-1.0 if min_val is LEFT_OUT else min_val), (1.0 if max_val is LEFT_OUT else max_val)
    return bool(low < high)


def _activation_spaces() -> Iterator[tuple[str, Space]]:
    slopes, alphas = (
        number("negative_slope", 0.25, 0.0, 1.0, 2.0),
        number("alpha", 2.0, 0.5, 0.25, drawn=[0.25, 0.5, 1.0, 4.0]),
    )
    for operator in ("nn.ELU", "F.elu"):
        yield operator, unary(operator, alphas, INPLACE)
    for operator in ("nn.LeakyReLU", "F.leaky_relu"):
        yield operator, unary(operator, slopes, INPLACE)
    yield "F.leaky_relu_", unary("F.leaky_relu_", slopes)
    for operator in ("nn.Hardswish", "F.hardswish", "nn.ReLU", "nn.ReLU6", "F.relu", "F.relu6"):
        yield operator, unary(operator, INPLACE)
    probability = number("p", 0.25, 0.0, 1.0, drawn=[0.0, 0.5, 0.75])
    yield "nn.Dropout", unary("nn.Dropout", probability, INPLACE)
    yield "F.dropout", unary("F.dropout", probability, factor("training", False), INPLACE)
    slope_count = factor("num_parameters", LEFT_OUT, per_channel_slope=4)
    init = number("init", 0.5, 0.0, 1.0, -0.25)

    def fits(form: Any, num_parameters: Any) -> bool:
        return num_parameters is LEFT_OUT or (len(form) > 1 and form[1] == num_parameters)

    yield "nn.PReLU", unary("nn.PReLU", slope_count, init, constraints=(fits,), left_out=DEVICE, twice=False)
    for operator in ("torch.relu", "Tensor.relu", "Tensor.relu_"):
        yield operator, unary(operator)
    low, high = number("min_val", -2.0, -0.5, 0.0), number("max_val", 3.0, 0.25, 6.0)
    renamed = dict.fromkeys(("min_value", "max_value"), "a deprecated name of min_val or max_val")
    for operator in ("nn.Hardtanh", "F.hardtanh"):
        yield operator, unary(operator, low, high, INPLACE, constraints=(_in_order,), left_out=renamed)
    yield "F.hardtanh_", unary("F.hardtanh_", low, high, constraints=(_in_order,))
    yield "nn.Identity", unary("nn.Identity", twice=False, left_out=IGNORED)
    lower = factor("min", -1.5, LEFT_OUT, 0.0, -100.0, 0.25, drawn=NUMBERS)
    upper = factor("max", 2.0, LEFT_OUT, 6.0, 100.0, 0.5, drawn=NUMBERS)

    def bounded(min: Any, max: Any) -> bool:
        return (min is not LEFT_OUT or max is not LEFT_OUT) and (LEFT_OUT in (min, max) or min < max)

    for operator in ("torch.clamp", "Tensor.clamp"):
        yield operator, unary(operator, lower, upper, constraints=(bounded,))


DEVICE = dict.fromkeys(("device", "dtype"), "where parameters are made, not what is computed")


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


def _binary(operator: str, sign: str, *options: Factor) -> Space:
    """The space of a binary operator of two tensors, or of a tensor and a number on either side."""

    def write(form: Any, style: str, scalar: Any, second: Operand, **values: Any) -> Variant:
        left, right = form
        expressions = ["x", "x" if right is None else "y"]
        taken = operands(left, *([] if right is None or scalar is not None else [right]))
        if "y" in taken:
            taken["y"] = replace(second, shape=right)
        if scalar is not None:
            side, value = scalar
            expressions[side], expressions[1 - side] = repr(value), "x"
        output = numpy.broadcast_shapes(left, left if right is None or scalar is not None else right)
        call = (
            f"{expressions[0]} {sign} {expressions[1]}"
            if operator.startswith("operator.")
            else function(operator, dict(zip(("input", "other"), expressions, strict=True)), values, style)
        )
        return Variant("", call, taken, output=output)

    styles = {} if operator.startswith("operator.") else {"keyword": ALL_BY_NAME}
    scalars = factor(
        "scalar",
        None,
        covers=(),
        drawn=lambda pick: pick((None, None, (1, pick(NUMBERS)), (1, pick(range(-3, 7))))),
        **{name: (1, value) for name, value in SCALARS.items()},
        **({"scalar_left": (0, 1.5)} if operator.startswith("operator.") else {}),
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
        lambda data, second: data == "full" or not second.data,
    )
    factors = (*options, PAIRS, scalars, second, style(**styles), DATA, batches(0, 1, 5), LAYOUT, RESULT)
    broadcasts = lambda form, batch: batch is None or (form[1] is None or len(form[0]) == len(form[1]))  # noqa: E731
    return Space(factors, write, (*constraints, broadcasts), OUT if operator.startswith("torch.") else {})


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


def _matmul() -> Space:
    def write(form: Any, style: str, second: Operand) -> Variant:
        left, right = form
        taken = operands(left) if right is None else {**operands(left), "y": replace(second, shape=right)}
        expressions = {"input": "x", "other": "x" if right is None else "y"}
        return Variant("", function("torch.matmul", expressions, {}, style), taken, output=())

    second = factor(
        "second",
        Operand(()),
        covers=(),
        other_scale=Operand((), exponent=-3),
        other_zero_point=Operand((), data="positive"),
    )
    constraints = (
        lambda form, second: form[1] is not None or second == Operand(()),
        lambda form, layout: layout != "channels_last" or len(form[0]) == 4,
        lambda data, second: data == "full" or not second.data,
    )
    factors = (MATRICES, second, style(keyword=ALL_BY_NAME), DATA, LAYOUT, RESULT)
    return Space(factors, write, constraints, OUT)


def _binary_spaces() -> Iterator[tuple[str, Space]]:
    for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*")):
        yield f"operator.{name}", _binary(f"operator.{name}", sign)
        alpha = [] if name == "mul" else [factor("alpha", LEFT_OUT, 2, -1, 0.5)]
        yield f"torch.{name}", _binary(f"torch.{name}", sign, *alpha)
    yield "torch.matmul", _matmul()


ELEMENTWISE = dict([*_fixed_spaces(), *_activation_spaces(), *_binary_spaces()])
