"""Functions of one tensor: activations, those with fixed qparams, and dropout."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .calls import ALL_BY_NAME, BY_NAME, BY_POSITION, sources, style
from .networks import sequences
from .record import BATCHED, EVERY_CODE, IMAGE, WIDE_INPUT, Operator, SweepKind, fixed
from .space import (
    BATCH,
    DATA,
    LAYOUT,
    LEFT_OUT,
    PRELUDE,
    RESULT,
    TWICE,
    Factor,
    Pick,
    Space,
    Values,
    data,
    factor,
    images_have_formats,
)
from .variant import Operand, Shape, Variant

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 256, 257)
"""Sizes around the widths of vector registers and tiles of kernels."""

MOST_ELEMENTS = 10_000
"""Most elements of an operand whose shape is drawn."""

DEVICE = dict.fromkeys(("device", "dtype"), "where parameters are made, not what is computed")
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


def _space(
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
        return Variant("", operands={"x": Operand(form)}, output=form, **source)

    factors = (*options, FORM, style(**styles), DATA, BATCH, LAYOUT, RESULT)
    if INPLACE in options:
        constraints = (*constraints, _something_is_left)
    extra = OUT if kind == "torch" else {}
    return Space(factors, write, (images_have_formats, *constraints), {**extra, **(left_out or {})})


VECTOR: Values = {"form": (3,)}
LARGE: Values = {"form": (4, 3, 67)}
FEW = "default vector large reused batch0 batch1"
USUAL = f"{FEW} positive negative tiny huge channels_last"
"""The fixed variants of every function of one tensor."""


def unary(
    operator: str,
    *options: Factor,
    further: str = "",
    values: Mapping[str, Values] = {},
    constraints: tuple[Callable[..., bool], ...] = (),
    left_out: dict[str, str] | None = None,
    twice: bool = True,
    counted: bool = False,
    combined: bool = True,
    **base: object,
) -> Operator:
    """A function of one tensor, with fixed variants beside the usual ones."""
    space = _space(operator, *options, constraints=constraints, left_out=left_out, twice=twice)
    points = fixed(space, f"{USUAL} {further}", {"vector": VECTOR, "large": LARGE, **values}, **base)
    counts = BATCHED if counted else {}
    return Operator(operator, space, points, counts=counts, sweep=SweepKind.CODES, combined=combined)


def _in_network(space: Space, ranges: Factor) -> Space:
    """The space of a fixed-qparams function: its input has the fixed grid, or that of an operator before it."""

    def range_of_prelude(prelude: str, data: str) -> bool:
        return bool(prelude) == (data == "full")

    factors = [ranges if one.name == "data" else one for one in space.factors]
    prelude = factor(PRELUDE, "", covers=(), after_hardtanh=WIDE_INPUT)
    return Space((*factors, prelude), space.write, (*space.constraints, range_of_prelude), space.left_out)


IN_NETWORK: Values = {"prelude": WIDE_INPUT, "data": "full"}
"""After an operator with qparams of its own, on data of the whole range."""


def _fixed_qparams() -> Iterator[Operator]:
    """The functions as first operator, their input on the same fixed grid, and within a network.

    The fixed grid covers [0, 1) or [-1, 1), so the data ranges of other operators do not apply to it.
    """
    for name, titled in (("hardsigmoid", "nn.Hardsigmoid"), ("sigmoid", "nn.Sigmoid"), ("tanh", "nn.Tanh")):
        ranges = data("signed_unit" if name == "tanh" else "unit", "full")
        in_place = name == "hardsigmoid"
        prefix = "F" if in_place else "torch"
        for operator in (titled, f"{prefix}.{name}", f"Tensor.{name}", f"Tensor.{name}_"):
            kind = operator.partition(".")[0]
            options = [INPLACE] if in_place and kind != "Tensor" else []
            ignored = IGNORED if operator in ("nn.Sigmoid", "nn.Tanh") else {}
            space = _in_network(_space(operator, *options, twice=False, left_out=ignored), ranges)
            further = {"Tensor": "", "nn": "keyword called_twice"}.get(kind, "keyword")
            names = f"{FEW} channels_last {'inplace' if options else ''} {further} in_network"
            values = {"vector": VECTOR, "large": LARGE, "called_twice": {"style": TWICE}, "in_network": IN_NETWORK}
            # the function follows an operator with qparams of its own, as in a network
            sweep = {"every_code": {"form": EVERY_CODE, "data": "full", "prelude": "self.prelude = nn.Identity()"}}
            counts = BATCHED if kind == "torch" else {}
            points = fixed(space, names, values)
            yield Operator(operator, space, points, counts=counts, sweep=SweepKind.FIXED, sweeps=sweep)


def _softmax() -> Operator:
    dim = factor("dim", 1, -1, 0, -2, drawn=range(-4, 4))
    exists = (lambda form, dim: -len(form) <= dim < len(form),)
    space = _in_network(_space("nn.Softmax", dim, constraints=exists, twice=False), data("unit", "full"))
    values: dict[str, Values] = {
        "vector": {**VECTOR, "dim": 0},
        "large": LARGE,
        "called_twice": {"style": TWICE},
        "matrix": {"form": (4, 10)},
        "last_dimension": {"dim": -1},
        "dimension_before_last": {"dim": -2},
        "empty_vector": {**VECTOR, "dim": 0, "batch": 0},
        "in_network": IN_NETWORK,
    }
    names = (
        f"{FEW} channels_last keyword called_twice matrix last_dimension dimension_before_last empty_vector in_network"
    )
    return Operator("nn.Softmax", space, fixed(space, names, values), layers=sequences("scores"))


def _in_order(min_val: Any, max_val: Any) -> bool:
    low, high = (-1.0 if min_val is LEFT_OUT else min_val), (1.0 if max_val is LEFT_OUT else max_val)
    return bool(low < high)


def _by_position(**values: Any) -> Values:
    return {**values, "style": BY_POSITION}


def _activations() -> Iterator[Operator]:
    slopes = number("negative_slope", 0.25, 0.0, 1.0, 2.0)
    alphas = number("alpha", 2.0, 0.5, 0.25, drawn=[0.25, 0.5, 1.0, 4.0])
    module, called = "inplace keyword called_twice", "inplace keyword"
    alpha: dict[str, Values] = {"2.0": _by_position(alpha=2.0)}
    slope: dict[str, Values] = {"0.25": _by_position(negative_slope=0.25)}
    yield unary("nn.ELU", alphas, INPLACE, further=f"alpha_2.0 {module}", counted=True)
    yield unary("F.elu", alphas, INPLACE, further=f"alpha_2.0 2.0 {called}", values=alpha)
    yield unary("nn.LeakyReLU", slopes, INPLACE, further=f"negative_slope_0.25 {module}", counted=True)
    yield unary("F.leaky_relu", slopes, INPLACE, further=f"negative_slope_0.25 0.25 {called}", values=slope)
    yield unary("F.leaky_relu_", slopes, further="negative_slope_0.25 0.25 keyword", values=slope)
    yield unary("Tensor.leaky_relu", combined=False)
    for name in ("Hardswish", "ReLU", "ReLU6"):
        yield unary(f"nn.{name}", INPLACE, further=module, counted=name != "ReLU6")
        yield unary(f"F.{name.lower()}", INPLACE, further=called)
    probability = number("p", 0.25, 0.0, 1.0, drawn=[0.0, 0.5, 0.75])
    yield unary("nn.Dropout", probability, INPLACE, further=f"p_0.25 {module}")
    yield unary("F.dropout", probability, factor("training", False), INPLACE, further=f"p_0.25 {called}")
    slope_count = factor("num_parameters", LEFT_OUT, per_channel_slope=4)
    init = number("init", 0.5, 0.0, 1.0, -0.25)

    def fits(form: Any, num_parameters: Any) -> bool:
        return num_parameters is LEFT_OUT or (len(form) > 1 and form[1] == num_parameters)

    yield unary(
        "nn.PReLU",
        *(slope_count, init),
        further="per_channel_slope keyword",
        values={"per_channel_slope": _by_position(num_parameters=4)},
        constraints=(fits,),
        left_out=DEVICE,
        twice=False,
        counted=True,
    )
    yield unary("torch.relu", further="keyword")
    yield unary("Tensor.relu")
    yield unary("Tensor.relu_")
    low, high = number("min_val", -2.0, -0.5, 0.0), number("max_val", 3.0, 0.25, 6.0)
    renamed = dict.fromkeys(("min_value", "max_value"), "a deprecated name of min_val or max_val")
    bounds: dict[str, Values] = {
        "-2.0_3.0": _by_position(min_val=-2.0, max_val=3.0),
        "min_val_-0.5_max_val_0.25": {"min_val": -0.5, "max_val": 0.25},
    }
    for operator, further in (
        ("nn.Hardtanh", f"{' '.join(bounds)} {module}"),
        ("F.hardtanh", f"{' '.join(bounds)} {called}"),
        ("F.hardtanh_", "-2.0_3.0 min_val_-2.0 keyword"),
    ):
        options, others = ((low, high), {}) if operator.endswith("_") else ((low, high, INPLACE), renamed)
        yield unary(operator, *options, further=further, values=bounds, constraints=(_in_order,), left_out=others)
    yield unary("nn.Identity", twice=False, left_out=IGNORED, further="keyword")
    yield from _clamps()


def _clamps() -> Iterator[Operator]:
    lower = factor("min", -1.5, LEFT_OUT, 0.0, -100.0, 0.25, drawn=NUMBERS)
    upper = factor("max", 2.0, LEFT_OUT, 6.0, 100.0, 0.5, drawn=NUMBERS)

    def bounded(min: Any, max: Any) -> bool:
        return (min is not LEFT_OUT or max is not LEFT_OUT) and (LEFT_OUT in (min, max) or min < max)

    values: dict[str, Values] = {
        "min_-1.5": {"max": LEFT_OUT, "style": BY_NAME},
        "max_2.0": {"min": LEFT_OUT, "style": BY_NAME},
        "min_0": {"min": 0, "max": LEFT_OUT, "style": BY_NAME},
        "min_-1.5_max_2.0": {"style": BY_NAME},
        "-100.0_100.0": {"min": -100.0, "max": 100.0},
    }
    for operator, keyword in (("torch.clamp", "keyword"), ("Tensor.clamp", "")):
        further = f"{' '.join(values)} {keyword}"
        yield unary(operator, lower, upper, further=further, values=values, constraints=(bounded,), style=BY_POSITION)


ELEMENTWISE = [*_fixed_qparams(), _softmax(), *_activations()]
