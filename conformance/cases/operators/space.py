"""Option spaces: each option of an operator with its domain, and the points of which variants are made."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from .variant import Operand, Variant

Point = Mapping[str, str]
"""A point of an option space: the label of the chosen value by the name of its factor. Other factors have their default."""

Values = Mapping[str, Any]
"""Values of factors, or of further parameters of a space's `write`, by name."""

Pick = Callable[[Sequence[Any]], Any]
"""Chooses one element of a sequence."""

TWICE = "twice"
"""The style of a call in which a module is applied to its own result."""

JOINT = "+"
"""Between the labels in the name of a point."""


class LeftOut:
    """The value of an argument that a call does not state."""

    def __repr__(self) -> str:
        return "LEFT_OUT"


LEFT_OUT = LeftOut()

APART = frozenset({"keyword", "keyword_options", "keyword_bias", "integers", "called_twice", "batch0"})
"""Labels of values that are tried singly and not combined with others, because they hide those.

torch does not quantize an input that is passed by keyword, does not lower a functional convolution whose options are keywords
or integers, and gives both calls of a module the qparams of one. An empty batch has no values.
"""


@dataclass(frozen=True)
class Factor:
    """What can be chosen about a call of an operator: an option, the form of its operands, or the style of the call.

    `values` has the default, whose label is empty, and the boundary values by label. Labels are unique within a space,
    because they name variants. A drawn case takes one of these values or, if there is `drawn`, what that picks. `covers` are
    the keyword arguments of the signature that the factor sets; by default the one with its name.
    """

    name: str
    values: Mapping[str, Any]
    drawn: Callable[[Pick], Any] | None = None
    covers: tuple[str, ...] | None = None

    @property
    def combined(self) -> list[str]:
        """The labels of the values that are combined with those of other factors."""
        return [label for label in self.values if label not in APART]

    @property
    def keywords(self) -> tuple[str, ...]:
        return (self.name,) if self.covers is None else self.covers


@dataclass(frozen=True)
class Space:
    """The option space of an operator.

    `write` returns the variant of the values of all factors, which it gets by name, except those of COMMON and PRELUDE, and
    of what else a fixed point sets. `constraints` say which combinations are valid: the names of their parameters are those
    of the factors that they relate. `left_out` are keyword arguments that no factor sets, with the reason.
    """

    factors: tuple[Factor, ...]
    write: Callable[..., Variant]
    constraints: tuple[Callable[..., bool], ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> Mapping[str, Factor]:
        return {factor.name: factor for factor in self.factors}

    @cached_property
    def factor_of(self) -> Mapping[str, str]:
        """The name of the factor that has a label."""
        return {label: factor.name for factor in self.factors for label in factor.values if label}

    @cached_property
    def defaults(self) -> Values:
        """The default value of every factor."""
        return {factor.name: factor.values[""] for factor in self.factors}

    def values(self, point: Point) -> dict[str, Any]:
        """The value of every factor at a point. Raises KeyError for a factor or label that the space lacks."""
        if unknown := point.keys() - self.by_name.keys():
            raise KeyError(f"no factor {min(unknown)!r}: factors are {', '.join(self.by_name)}")
        return {factor.name: factor.values[point.get(factor.name, "")] for factor in self.factors}

    @cached_property
    def related(self) -> tuple[tuple[str, ...], ...]:
        """The names of the factors that each constraint relates."""
        return tuple(tuple(inspect.signature(constraint).parameters) for constraint in self.constraints)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the constraints of which all factors are among the values allow them."""
        return all(
            constraint(*(values[name] for name in names))
            for constraint, names in zip(self.constraints, self.related, strict=True)
            if all(name in values for name in names)
        )

    def point(self, name: str) -> Point:
        """The point that has a name. Raises KeyError for a label that the space lacks."""
        return {self.factor_of[label]: label for label in name.split(JOINT)}

    def name(self, point: Point) -> str:
        """The name of a point: its labels in the order of the factors."""
        return JOINT.join(label for factor in self.factors if (label := point.get(factor.name, "")))

    def at(self, name: str) -> Variant:
        """The variant of the point with a name."""
        return self.written(name, self.values(self.point(name)))

    def written(self, name: str, values: Values, *, core: bool = False) -> Variant:
        """The variant of these values of all factors."""
        variant = self.write(**{key: value for key, value in values.items() if key not in COMMON and key != PRELUDE})
        fields = {key: values[key] for key in (*FIELDS, PRELUDE) if key in values}
        if values.get("style") == TWICE:
            fields["applications"] = 2
        return _with_layout(variant, values.get("layout", "contiguous")).named(name, core=core, **fields)

    @cached_property
    def singles(self) -> tuple[str, ...]:
        """Names of the valid points that differ from the default in one value."""
        points = {label: {factor: label} for label, factor in self.factor_of.items()}
        return tuple(label for label, point in points.items() if self.holds(self.values(point)))

    def pairs(self) -> Iterator[frozenset[tuple[str, str]]]:
        """Every pair of combined values, as factor and label, that some valid point has."""
        for one, other in combinations(self.factors, 2):
            for label in one.combined:
                for another in other.combined:
                    if self.completed({one.name: label, other.name: another}) is not None:
                        yield frozenset({(one.name, label), (other.name, another)})

    def completed(self, point: Point) -> Point | None:
        """A valid point of all factors that has these labels, None if there is none."""
        if not self.holds({name: self.by_name[name].values[label] for name, label in point.items()}):
            return None
        rest = [factor for factor in self.factors if factor.name not in point]
        if not rest:
            return point
        completions = (self.completed({**point, rest[0].name: label}) for label in rest[0].combined)
        return next((whole for whole in completions if whole is not None), None)


def _with_layout(variant: Variant, layout: str) -> Variant:
    """The variant with operands in a memory format, as far as their ranks have it; they are contiguous already."""
    if layout == "contiguous":
        return variant
    laid = {
        name: replace(spec, layout=layout)
        for name, spec in variant.operands.items()
        if spec.kind == "activation" and (layout != "channels_last" or len(spec.shape) in (4, 5))
    }
    return replace(variant, operands={**variant.operands, **laid})


FIELDS = ("batch", "data", "per_channel", "saturates", "result")
"""The factors that are fields of a variant."""

COMMON = frozenset({*FIELDS, "layout"})
"""The factors that change the variant of any operator in the same way."""

PRELUDE = "prelude"
"""The value that is the operator before another one, which is a field of a variant too. As a factor it is one of the
operator's own: cases combine it and draw it."""


def label(name: str, value: object) -> str:
    """The label of a value: `stride_2`, `kernel_size_2x1`, `no_bias` for False, `ceil_mode` for True."""
    if isinstance(value, bool) or value is None or value is LEFT_OUT:
        return name if value is True else f"no_{name}"
    if isinstance(value, tuple | list):
        return f"{name}_{'x'.join(map(str, value)) or 'empty'}"
    return f"{name}_{value}"


def factor(
    name: str,
    default: Any,
    *values: Any,
    drawn: Callable[[Pick], Any] | Sequence[Any] | None = None,
    covers: tuple[str, ...] | None = None,
    **labelled: Any,
) -> Factor:
    """A factor whose values are labelled by its name and the value; `labelled` are further values by label."""
    picks = drawn if drawn is None or callable(drawn) else (lambda pick: pick(drawn))
    values_by_label = {"": default, **{label(name, value): value for value in values}, **labelled}
    return Factor(name, values_by_label, picks, covers)


def batches(*sizes: int) -> Factor:
    """Sizes of the batch in the execution, where that differs from the calibration's."""
    return Factor("batch", {"": None, **{f"batch{size}": size for size in sizes}}, covers=())


def data(default: str, *names: str) -> Factor:
    """Ranges of the data, by their names in `conformance.cases.ranges`."""
    return Factor("data", {name: name for name in ("", *names)} | {"": default}, covers=())


BATCH = batches(0, 1, 5)
DATA = data("full", "positive", "negative", "tiny", "huge")
SECOND = factor(
    "second",
    Operand(()),
    covers=(),
    other_scale=Operand((), exponent=-3),
    other_zero_point=Operand((), data="positive"),
)
"""The scale and zero point of a second operand, beside those of the first."""
LAYOUT = factor("layout", "contiguous", covers=(), channels_last="channels_last", strided="strided")
STRIDED = factor("layout", "contiguous", covers=(), strided="strided")
"""The formats of tensors without a channels-last format."""
RESULT = factor("result", "y", covers=(), reused="y, x")


def one_range_is_usual(data: str, second: Operand) -> bool:
    """Only beside usual data a second operand has a zero point of its own."""
    return data == "full" or not second.data


def images_have_formats(form: Any, layout: str) -> bool:
    """Only tensors of four or five dimensions have a channels-last format."""
    return layout != "channels_last" or len(form) in (4, 5)
