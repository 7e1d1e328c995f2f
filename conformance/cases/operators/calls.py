"""Calls of operators by their signatures, as source text: which arguments are passed by position and which by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from .space import LEFT_OUT, TWICE, Factor

BY_NAME = "options by name"
BY_POSITION = "options by position"
ALL_BY_NAME = "all by name"
EACH_BY_NAME = "each option by name"
"""As BY_NAME, with those options by name, too, that the others pass by position."""


def style(default: str = BY_NAME, **labelled: str) -> Factor:
    """The styles of a call; the tensors are passed by position or, in the style ALL_BY_NAME, by name."""
    return Factor("style", {"": default, **labelled}, covers=())


def arguments(options: Mapping[str, Any], style: str, required: int = 0) -> list[str]:
    """The options that are not left out, as arguments in the order of the signature.

    By name, all but the first `required` are keyword arguments; by position, those after the first that is left out are.
    """
    stated = [(name, value) for name, value in options.items() if value is not LEFT_OUT]
    leading = required
    if style == BY_POSITION:
        leading = next((n for n, value in enumerate(options.values()) if value is LEFT_OUT), len(options))
    elif style in (ALL_BY_NAME, EACH_BY_NAME):
        leading = 0
    positional = [repr(value) for _, value in stated[:leading]]
    return [*positional, *(f"{name}={value!r}" for name, value in stated[leading:])]


def function(name: str, tensors: Mapping[str, str], options: Mapping[str, Any], style: str, required: int = 0) -> str:
    """A call of a function; `tensors` are the expressions of the operands by the names of the signature."""
    by_name = style == ALL_BY_NAME
    operands = [f"{parameter}={expression}" if by_name else expression for parameter, expression in tensors.items()]
    return f"{name}({', '.join([*operands, *arguments(options, style, required)])})"


def method(name: str, options: Mapping[str, Any], style: str, required: int = 0) -> str:
    """A call of a method of `x`."""
    return f"x.{name}({', '.join(arguments(options, style, required))})"


def module(name: str, options: Mapping[str, Any], style: str, required: int = 0, *further: str) -> str:
    """The constructor of a module. Its options are passed by name in every style but one."""
    by = BY_POSITION if style == BY_POSITION else BY_NAME
    return f"{name}({', '.join([*arguments(options, by, required), *further])})"


def sources(operator: str, options: Mapping[str, Any], style: str, required: int = 0) -> dict[str, Any]:
    """The source of an operator applied to `x`, by field of a variant: of a module, a method or a function."""
    kind, _, short = operator.partition(".")
    if kind == "nn":
        return {"init": module(operator, options, style, required), "call": applied(style)}
    if kind == "Tensor":
        return {"call": method(short, options, style, required)}
    return {"call": function(operator, {"input": "x"}, options, style, required)}


def applied(style: str, tensors: Sequence[str] = ("x",)) -> str:
    """A call of the module `self.op`."""
    if style == TWICE:
        return "self.op(self.op(x))"
    first, *rest = tensors
    if style == ALL_BY_NAME:
        return f"self.op({', '.join([f'input={first}', *(f'hx={one}' for one in rest)])})"
    return f"self.op({', '.join(tensors)})"
