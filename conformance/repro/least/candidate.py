"""Candidates for a least script: a model, its data, parameters and QConfig, which reductions make smaller.

A candidate consists of source text and plain tensors, so that it can be sent to the child that executes its script.
"""

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy
import torch
from torch import Tensor

from conformance.models.data import FORMATS

LAYOUTS = {
    "contiguous": "",
    "channels_last": ".contiguous(memory_format={})",
    "strided": ".repeat_interleave(2, -1)[..., ::2]",
}
"""The source that gives a tensor each layout of an `Operand`, after the tensor's own."""

FEW = 4
"""Elements up to which a tensor is written as they are."""

MOST_COLUMNS = 110
"""Columns of a line of a script that can be written on several."""

FILLS = {
    "own": "",
    "ones": "for p in model.parameters():\n    p.fill_(1.0)\n",
    "halves": "for p in model.parameters():\n    p.fill_(0.5)\n",
    "linspace": "for p in model.parameters():\n    p.copy_(torch.linspace(-1, 1, p.numel()).view_as(p))\n",
}
"""The lines that set parameters to something simple, by name: none, constants, and values in even steps."""


def number(value: float) -> str:
    """The shortest source of a float32 number."""
    if not math.isfinite(value):
        return f'float("{value}")'
    return str(numpy.float32(value))


def listed(values: Tensor) -> str:
    """The source of a tensor as nested lists."""
    if values.dim():
        return f"[{', '.join(listed(part) for part in values)}]"
    return number(float(values)) if values.is_floating_point() else str(int(values))


def literal(values: Tensor) -> str:
    """The shortest source of a tensor: zeros, a constant, or its elements."""
    shape, dtype = tuple(values.shape), "" if values.is_floating_point() else ", dtype=torch.int64"
    flat = values.flatten()
    if not flat.numel() or (flat.numel() > FEW and bool((flat == 0).all())):
        return f"torch.zeros({shape}{dtype})"
    if flat.numel() > FEW and bool((flat == flat[0]).all()):
        return f"torch.full({shape}, {listed(flat[0])})"
    return f"torch.tensor({listed(values)})"


@dataclass(frozen=True)
class Data:
    """One tensor of a script.

    `form` is `zeros`, `ones`, `linspace` (float32 in even steps from `low` to `high`), `modulo` (int64, ascending below
    `limit`) or `literal` (`values`).
    """

    form: str
    shape: tuple[int, ...]
    layout: str = "contiguous"
    low: float = -1.0
    high: float = 1.0
    limit: int = 0
    values: Tensor | None = None

    @property
    def source(self) -> str:
        """The expression of the tensor."""
        layout = LAYOUTS[self.layout].format(FORMATS.get(len(self.shape), ""))
        return self._contiguous + layout

    @property
    def _contiguous(self) -> str:
        count, shape = math.prod(self.shape), self.shape
        reshaped = "" if len(shape) == 1 else f".reshape({shape})"
        integral = ", dtype=torch.int64" if self.limit else ""
        if self.form in ("zeros", "ones"):
            return f"torch.{self.form}({shape}{integral})"
        if self.form == "linspace" and count > FEW:
            return f"torch.linspace({number(self.low)}, {number(self.high)}, {count}){reshaped}"
        if self.form == "modulo":
            return (
                f"torch.arange({count}){reshaped} % {self.limit}"
                if reshaped
                else f"torch.arange({count}) % {self.limit}"
            )
        if self.form == "linspace":
            return literal(torch.linspace(self.low, self.high, count).reshape(shape))
        assert self.values is not None
        return literal(self.values)

    @property
    def tensor(self) -> Tensor:
        """The tensor itself, in its layout."""
        value: Tensor = eval(self.source, {"torch": torch})
        return value

    def resized(self, shape: tuple[int, ...]) -> "Data":
        """The same data in another shape; of literal values, their beginning. Raises ValueError if there are too few."""
        if self.values is None:
            return replace(self, shape=shape)
        if any(new > old for new, old in zip(shape, self.shape, strict=True)):
            raise ValueError(f"{self.shape} is smaller than {shape}")
        return replace(self, shape=shape, values=self.values[tuple(slice(size) for size in shape)].contiguous())


def of_tensor(tensor: Tensor, layout: str) -> Data:
    """Literal data with the values of a tensor."""
    return Data("literal", tuple(tensor.shape), layout, values=tensor.detach().contiguous(), limit=_limit(tensor))


def _limit(tensor: Tensor) -> int:
    return 0 if tensor.is_floating_point() else int(tensor.max()) + 1 if tensor.numel() else 1


def inlined(lines: Sequence[str]) -> tuple[str, ...]:
    """Lines that end in a `return`, with each value that only the next line uses, once, written in its place."""
    merged = [lines[0]]
    for number_, line in enumerate(lines[1:], 1):
        statement = ast.parse(merged[-1]).body[0]
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            last = line.startswith((f"{name} = ", "return ")) or not any(
                loads(one, name) for one in lines[number_ + 1 :]
            )
            whole = with_value(line, name, statement.value)
            if last and loads(line, name) == 1 and len(whole) <= MOST_COLUMNS:
                merged[-1] = whole
                continue
        merged.append(line)
    return tuple(merged)


def loads(line: str, name: str) -> int:
    """How often a line of source reads a name."""
    return sum(_reads_name(node, name) for node in ast.walk(ast.parse(line)))


class _Rewriter(ast.NodeTransformer):
    def __init__(self, change: Callable[[ast.AST], ast.AST | None]) -> None:
        self.change = change

    def visit(self, node: ast.AST) -> ast.AST:
        changed = self.change(node)
        return self.generic_visit(node) if changed is None else changed


def rewritten(line: str, change: Callable[[ast.AST], ast.AST | None]) -> str:
    """A line of source in which each node is replaced by what `change` returns for it, if that is not None."""
    return ast.unparse(_Rewriter(change).visit(ast.parse(line)))


def with_value(line: str, name: str, value: ast.expr) -> str:
    """A line of source with an expression in place of a name that it reads."""
    return rewritten(line, lambda node: value if _reads_name(node, name) else None)


def _reads_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


@dataclass(frozen=True)
class Candidate:
    """What a least script is written from.

    Attributes:
        init, forward: lines of the model's methods.
        operands: names of the arguments of `forward`.
        inputs: the data that the model is executed with.
        calibration: the data that it is calibrated with; None for its inputs.
        parameters: a key of FILLS, or the names and values of parameters and buffers.
        qconfig, mapping: sources.
        clones: whether calls get copies of their inputs, because the model writes to them.
        perturbed: whether new memory is filled before each execution, so that what a kernel leaves of it shows.
        sequential: whether the model is written as `nn.Sequential` where it can be.
        threads: the number of threads.
        simpler: the QConfigs and mappings that are easier to read, which did not show the deviation in larger candidates.
    """

    init: tuple[str, ...]
    forward: tuple[str, ...]
    operands: tuple[str, ...]
    inputs: tuple[Data, ...]
    qconfig: str
    mapping: str
    calibration: tuple[Data, ...] | None = None
    parameters: str | tuple[tuple[str, Tensor], ...] = "own"
    clones: bool = False
    perturbed: bool = False
    sequential: bool = False
    threads: int = 1
    simpler: tuple[tuple[str, str], ...] = ()

    @cached_property
    def body(self) -> tuple[str, ...]:
        """The lines of `forward`, each inserted in the next one where that is the only one to use its value."""
        functional: ast.expr = ast.parse("nn.functional", mode="eval").body
        return tuple(with_value(line, "F", functional) for line in inlined(self.forward))

    @cached_property
    def chain(self) -> dict[str, str] | None:
        """The modules of a model that applies one after the other to its only input, by name; None for other models."""
        if len(self.operands) != 1:
            return None
        modules = dict(line.removeprefix("self.").split(" = ", 1) for line in self.init if line.startswith("self."))
        (statement, *more) = [ast.parse(line).body[0] for line in self.body]
        value, names = getattr(statement, "value", None), list[str]()
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and len(value.args) == 1:
            if not isinstance(value.func.value, ast.Name) or value.func.value.id != "self" or value.keywords:
                return None
            names.insert(0, value.func.attr)
            value = value.args[0]
        if more or not isinstance(value, ast.Name):
            return None
        whole = [*modules] == [*dict.fromkeys(names)] and len(modules) == len(names) == len(self.init)
        return {name: modules[name] for name in names} if whole else None

    @property
    def model_source(self) -> str:
        """The class of the model; empty if it is written as `nn.Sequential`."""
        if self.sequential and self.chain is not None:
            return ""
        used = [line for line in self.init if not line.startswith("self.") or _reads(self, line)]
        init = "".join(f"        {line}\n" for line in used)
        if init:
            init = f"    def __init__(self):\n        super().__init__()\n{init}\n"
        forward = "".join(f"        {line}\n" for line in self.body)
        return f"class Model(nn.Module):\n{init}    def forward(self, {', '.join(self.operands)}):\n{forward}"

    @property
    def model_lines(self) -> str:
        """The lines that bind `model` and set its parameters."""
        if self.sequential and self.chain is not None:
            modules = [*self.chain.values()]
            lines = f"model = nn.Sequential({', '.join(modules)})"
            if len(lines) > MOST_COLUMNS:
                lines = "model = nn.Sequential(\n" + "".join(f"    {module},\n" for module in modules) + ")"
        else:
            lines = "model = Model()"
        return f"{lines}\n{self.parameter_lines}"

    @property
    def parameter_lines(self) -> str:
        """The lines that set the parameters and buffers of `model`."""
        if isinstance(self.parameters, str):
            return FILLS[self.parameters]
        return "".join(f"model{self._path(name)}.copy_({literal(value)})\n" for name, value in self.parameters)

    def _path(self, name: str) -> str:
        """The path of a parameter or buffer after `model`: `.op.weight`, or `[0].weight` in `nn.Sequential`."""
        first, _, rest = name.partition(".")
        if self.sequential and self.chain is not None:
            return f"[{[*self.chain].index(first)}].{rest}"
        return f".{name}"


def _reads(candidate: Candidate, line: str) -> bool:
    """Whether a model reads the attribute that a line of its constructor sets."""
    name = line.partition(" = ")[0]
    others = (one.partition(" = ")[2] for one in candidate.init if one != line)
    return any(
        name in [ast.unparse(node) for node in ast.walk(ast.parse(one))] for one in (*candidate.forward, *others)
    )
