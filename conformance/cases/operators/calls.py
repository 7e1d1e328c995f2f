"""Calls of operators by their signatures: which arguments are passed by position and which by name."""

from collections.abc import Mapping
from typing import Any

from .expressions import Call, X
from .space import LEFT_OUT, TWICE, Factor

BY_NAME = "options by name"
BY_POSITION = "options by position"
ALL_BY_NAME = "all by name"
EACH_BY_NAME = "each option by name"
"""As BY_NAME, with those options by name, too, that the others pass by position."""


def style(default: str = BY_NAME, **labelled: str) -> Factor:
    """The styles of a call; the tensors are passed by position or, in the style ALL_BY_NAME, by name."""
    return Factor("style", {"": default, **labelled}, covers=())


Arguments = tuple[list[Any], dict[str, Any]]
"""Arguments by position, and by name."""


def arguments(options: Mapping[str, Any], style: str, required: int = 0) -> Arguments:
    """The options that are not left out, as arguments in the order of the signature.

    By name, all but the first `required` are keyword arguments; by position, those after the first that is left out are.
    """
    stated = [(name, value) for name, value in options.items() if value is not LEFT_OUT]
    leading = required
    if style == BY_POSITION:
        leading = next((n for n, value in enumerate(options.values()) if value is LEFT_OUT), len(options))
    elif style in (ALL_BY_NAME, EACH_BY_NAME):
        leading = 0
    return [value for _, value in stated[:leading]], dict(stated[leading:])


def function(name: str, tensors: Mapping[str, Any], options: Mapping[str, Any], style: str, required: int = 0) -> Call:
    """A call of a function; `tensors` are the operands, or numbers in their place, by the names of the signature."""
    positional, keywords = arguments(options, style, required)
    if style == ALL_BY_NAME:
        return Call(name, positional, {**tensors, **keywords})
    return Call(name, [*tensors.values(), *positional], keywords)


def module(name: str, options: Mapping[str, Any], style: str, required: int = 0, **further: Any) -> Call:
    """The constructor of a module. Its options are passed by name in every style but one."""
    positional, keywords = arguments(options, BY_POSITION if style == BY_POSITION else BY_NAME, required)
    return Call(name, positional, {**keywords, **further})


def sources(operator: str, options: Mapping[str, Any], style: str, required: int = 0) -> dict[str, Any]:
    """The calls of an operator applied to `x`, by field of a variant: of a module, a method or a function."""
    kind, _, short = operator.partition(".")
    if kind == "nn":
        return {"init": module(operator, options, style, required), "call": applied(style)}
    if kind == "Tensor":
        return {"call": Call(f"x.{short}", *arguments(options, style, required))}
    return {"call": function(operator, {"input": X}, options, style, required)}


def applied(style: str, state: Any = None) -> Call:
    """A call of the module `self.op`, with its `state` if it takes one."""
    if style == TWICE:
        return Call("self.op", [Call("self.op", [X])])
    tensors = {"input": X} if state is None else {"input": X, "hx": state}
    return Call("self.op", (), tensors) if style == ALL_BY_NAME else Call("self.op", tensors.values())
