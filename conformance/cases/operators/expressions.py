"""Python expressions as source text: calls whose arguments can be replaced, and numbers that can be replaced."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache


@dataclass(frozen=True)
class Call:
    """A call expression: the dotted name of the function, and its arguments as source text."""

    function: str
    positional: tuple[str, ...] = ()
    keywords: tuple[tuple[str, str], ...] = ()

    @classmethod
    @lru_cache(4096)  # claims share the source of their operators' variants
    def parse(cls, source: str) -> "Call":
        """Parse source text. Raises ValueError if it is anything but one call."""
        node = ast.parse(source, mode="eval").body
        if not isinstance(node, ast.Call):
            raise ValueError(f"{source!r} is not a call")
        positional = tuple(_segment(source, argument) for argument in node.args)
        keywords = tuple((str(keyword.arg), _segment(source, keyword.value)) for keyword in node.keywords)
        return cls(_segment(source, node.func), positional, keywords)

    @property
    def source(self) -> str:
        keywords = (f"{name}={value}" for name, value in self.keywords)
        return f"{self.function}({', '.join((*self.positional, *keywords))})"

    def with_arguments(self, arguments: Mapping[int | str, object]) -> "Call":
        """The call with other values of some arguments, by position or keyword; a new keyword precedes the present ones.

        Raises ValueError for a position that the call does not have.
        """
        positional, keywords = list(self.positional), dict(self.keywords)
        added: dict[str, str] = {}
        for key, value in arguments.items():
            if isinstance(key, str):
                (keywords if key in keywords else added)[key] = repr(value)
            elif key < len(positional):
                positional[key] = repr(value)
            else:
                raise ValueError(f"{self.source!r} has no positional argument {key}")
        return replace(self, positional=tuple(positional), keywords=tuple((added | keywords).items()))


def _segment(source: str, node: ast.expr) -> str:
    segment = ast.get_source_segment(source, node)
    assert segment is not None  # the node comes from this source
    return segment


def _numbers(node: ast.AST) -> Iterator[ast.expr]:
    """Literal numbers with their sign, without indices."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        yield node
        return
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield node
    for child in [node.value] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node):
        yield from _numbers(child)


def with_numbers(source: str, number: Callable[[int | float], int | float]) -> str:
    """Replace every literal number of an expression by what `number` returns for it, from left to right.

    Indices stay: they say which dimension of a shape is meant. Text without an expression is returned as it is.
    """
    if not source:
        return source
    nodes = sorted(_numbers(ast.parse(source, mode="eval")), key=lambda node: node.col_offset)
    values = [number(ast.literal_eval(node)) for node in nodes]
    for node, value in reversed([*zip(nodes, values, strict=True)]):
        source = source[: node.col_offset] + repr(value) + source[node.end_col_offset :]
    return source
