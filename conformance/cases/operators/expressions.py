"""Expressions of a model: source text that keeps the values of which it was rendered."""

import ast
from collections.abc import Iterable, Mapping
from typing import Any

SIGNS: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.MatMult: "@",
}
"""Signs of infix operators."""


def _is_sign(function: str) -> bool:
    return not function[:1].isidentifier()


class Source(str):
    """An expression as source text, as which it stands among the arguments of calls."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Call(Source):
    """A call of a function, a method or a module's constructor: its text, its name, and its arguments as values.

    Arguments that are no values, such as tensors, are `Source`. An infix operator is the call of its sign. `text` is how
    somebody spells the call, if it is not rendered.
    """

    __slots__ = ("function", "keywords", "positional")
    function: str
    positional: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def __new__(
        cls, function: str, positional: Iterable[Any] = (), keywords: Mapping[str, Any] = {}, text: str = ""
    ) -> "Call":
        values = tuple(positional)
        texts = [*map(repr, values), *(f"{name}={value!r}" for name, value in keywords.items())]
        rendered = f" {function} ".join(texts) if _is_sign(function) else f"{function}({', '.join(texts)})"
        call = super().__new__(cls, text or rendered)
        call.function, call.positional, call.keywords = function, values, keywords
        return call

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.function, self.positional, self.keywords, str(self)

    @property
    def infix(self) -> bool:
        return _is_sign(self.function)

    @property
    def has_numbers(self) -> bool:
        """Whether an argument is a number, or has one: of a sequence, or of another call."""
        return any(map(_has_numbers, (*self.positional, *self.keywords.values())))


def _has_numbers(value: Any) -> bool:
    if isinstance(value, Call):
        return value.has_numbers
    if isinstance(value, tuple | list):
        return any(map(_has_numbers, value))
    return type(value) in (int, float)


NONE = Source()
"""No expression."""
X, Y, WEIGHT, BIAS = map(Source, ("x", "y", "self.weight", "self.bias"))
"""Operands, and parameters of functions."""


def expression(text: str) -> Source:
    """The expression that somebody states as text, with the values of its arguments if it is a call or infix operator."""
    if isinstance(text, Source):
        return text
    try:
        found = _of(ast.parse(text, mode="eval").body)
    except SyntaxError:  # raised where it is executed
        return Source(text)
    if not isinstance(found, Call):
        return Source(text)
    return Call(found.function, found.positional, found.keywords, text)


def _of(node: ast.expr) -> Any:
    match node:
        case ast.Call():
            named = {str(keyword.arg): _of(keyword.value) for keyword in node.keywords}
            return Call(ast.unparse(node.func), map(_of, node.args), named)
        case ast.BinOp(op=operator) if type(operator) in SIGNS:
            return Call(SIGNS[type(operator)], (_of(node.left), _of(node.right)), text=ast.unparse(node))
        case ast.Tuple():
            return tuple(map(_of, node.elts))
        case ast.List():
            return [*map(_of, node.elts)]
    try:
        return ast.literal_eval(node)
    except ValueError:
        return Source(ast.unparse(node))
