"""Variants of operators that no table has: arguments from annotations and defaults, operands in shapes that are accepted."""

import inspect
import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from conformance.configs.names import operator_named
from conformance.errors import brief

from .variant import Operand, Shape, Variant

NAME = "from_signature"
"""The name of these variants, and of those of patterns that contain such an operator."""

SHAPES: tuple[Shape, ...] = ((2, 4, 7, 5), (2, 4, 6, 4), (2, 4, 9), (2, 4, 8), (3, 4), (2, 4, 5, 4, 4), (4,))
"""Shapes of operands, in the order in which they are tried."""

PARAMETER_SHAPES: tuple[Shape, ...] = ((4,), (4, 4), (1,))
"""Shapes of parameters of functions."""

PARAMETERS = frozenset({"weight", "bias"})
"""Arguments of functions that are parameters of the model."""

VALUES: dict[Any, str] = {int: "4", "int": "4", float: "0.5", "float": "0.5", bool: "False", "bool": "False"}
"""Arguments without a default, by annotation."""

DOMAINS = {"full": (-128, 127, -4), "signed_unit": (-128, 127, -7), "positive": (0, 255, -4)}
"""The ranges of data that are tried, in this order: least and greatest code and the exponent of the step of each."""

MOST_OPERANDS = 3


def finite_everywhere(variant: Variant) -> bool:
    """Whether the result of an operator is finite for data of any range, as far as is known."""
    return variant.name != NAME or variant.data == next(iter(DOMAINS))


@dataclass(frozen=True)
class Tried:
    """What came of trying an operator: its variant, or the reason why there is none."""

    variant: Variant | None
    reason: str = ""


class NoCall(Exception):
    """A signature does not say how to call an operator. The message says why."""


@dataclass(frozen=True)
class _Call:
    """Source of a call: of the module, or of the function around its operands. `parameters` are arguments of a function."""

    init: str
    function: str
    numbers: tuple[int, ...]
    parameters: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def source(self, names: Sequence[str]) -> str:
        """The call with operands of these names."""
        if self.function.startswith("x."):
            return f"{self.function}({', '.join(names[1:])})"
        return f"{self.function}({', '.join((*names, *self.options))})"


@cache
def tried(name: str) -> Tried:
    """Try an operator, by the name that patterns give it, and return its variant, or the reason why there is none.

    A module gets the arguments without defaults of its constructor by their annotations. The operands are tensors of float32
    in the first shapes that give a tensor, twice the same, and of the first range of data for which its numbers are finite.
    """
    try:
        operator, _ = operator_named(name)
        call = _call(name, operator)
    except (LookupError, NoCall) as error:
        return Tried(None, str(error))
    scope: dict[str, Any] = {"operator_": operator, "nn": nn, "torch": torch}
    first = ""
    for number in call.numbers:
        for shapes in _shapes(number):
            for sizes in itertools.product(PARAMETER_SHAPES, repeat=len(call.parameters)):
                parameters = dict(zip(call.parameters, sizes, strict=True))
                try:
                    output = _output(call, scope, shapes, parameters)
                except Exception as raised:
                    first = first or brief(raised)
                    continue
                given = {name: Operand(shape) for name, shape in zip("xyz", shapes, strict=False)}
                data = next((data for data in DOMAINS if _finite(call, scope, shapes, parameters, data)), "")
                if not data:
                    return Tried(None, f"{name} is infinite or no number for all ranges of operands that are tried")
                return Tried(
                    Variant(
                        NAME,
                        call.source([*given]).replace("operator_", name),
                        given,
                        call.init.replace("operator_", name),
                        parameters,
                        output=output,
                        data=data,
                        core=True,
                    )
                )
    return Tried(None, f"{name} takes none of the operands that are tried: {first}")


def _shapes(number: int) -> Iterator[tuple[Shape, ...]]:
    """Shapes of several operands: all the same, or those of matrices that can be multiplied."""
    yield from ((shape,) * number for shape in SHAPES)
    if number > 1:
        yield ((3, 4), (4, 5), (3, 5))[:number]
        yield ((2, 3, 4), (2, 4, 5), (2, 3, 5))[:number]


def _output(call: _Call, scope: dict[str, Any], shapes: Sequence[Shape], parameters: dict[str, Shape]) -> Shape:
    """The shape of the result. Raises whatever the operator raises, and ValueError for a result that cannot be compared."""
    generator = torch.Generator().manual_seed(0)
    made = {name: torch.rand(shape, generator=generator) for name, shape in parameters.items()}
    given = [torch.rand(shape, generator=generator) for shape in shapes]
    first, second = (_result(call, scope, made, given) for _ in range(2))
    if not isinstance(first, Tensor) or not first.is_floating_point():
        raise ValueError(f"it returns {type(first).__name__}, which is no tensor of floating-point numbers")
    if not torch.equal(first.nan_to_num(), second.nan_to_num()):
        raise ValueError("it returns something else each time")
    return tuple(first.shape)


def _result(call: _Call, scope: dict[str, Any], parameters: dict[str, Tensor], given: Sequence[Tensor]) -> Any:
    """What an operator returns for operands, which it may write to."""
    model = nn.Module()
    for name, value in parameters.items():
        model.register_parameter(name, nn.Parameter(value, requires_grad=False))
    named = {name: x.clone() for name, x in zip("xyz", given, strict=False)}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if call.init:
            model.op = eval(call.init, scope)
            for parameter in model.parameters():
                parameter.fill_(0.5)  # it may be memory that nothing was written to
        model.eval()
        return eval(call.source([*named]), {**scope, "self": model}, named)


def _finite(
    call: _Call, scope: dict[str, Any], shapes: Sequence[Shape], parameters: dict[str, Shape], data: str
) -> bool:
    """Whether the results are finite for operands that have zero, both ends and other codes of a range of data."""
    low, high, exponent = DOMAINS[data]
    codes = torch.cat([torch.tensor([0, low, high]), torch.arange(10_000) * 37 % (high - low + 1) + low])
    given = [(codes[: math.prod(shape)] * 2.0**exponent).reshape(shape) for shape in shapes]
    made = {name: torch.full(shape, 0.5) for name, shape in parameters.items()}
    return bool(torch.isfinite(_result(call, scope, made, given)).all())


def _call(name: str, operator: Any) -> _Call:
    """How to call an operator. Raises NoCall if its signature does not say it."""
    if isinstance(operator, str):
        return _Call("", f"x.{operator}", (1, 2))
    if inspect.isclass(operator):
        if not issubclass(operator, nn.Module):
            raise NoCall(f"{name} is a class, but no module")
        arguments = [_value(name, one) for one in _required(operator) or ()]
        forward = _required(operator.forward, skip=1)
        numbers = (1, 2) if forward is None else (len(forward),)
        return _Call(f"operator_({', '.join(arguments)})", "self.op", _checked(name, numbers))
    required = _required(operator)
    if required is None:  # a function without a signature, as most of torch's are
        return _Call("", "operator_", (1, 2, 3))
    tensors = [one for one in required if one.annotation in (inspect.Parameter.empty, Tensor, "Tensor", "torch.Tensor")]
    given = [one for one in tensors if one.name not in PARAMETERS]
    parameters = tuple(one.name for one in tensors if one.name in PARAMETERS)
    options = [f"{one.name}=self.{one.name}" for one in tensors if one.name in PARAMETERS]
    others = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in required if one not in tensors]
    options += [_value(name, one) for one in others]
    return _Call("", "operator_", _checked(name, (len(given),)), parameters, tuple(options))


def _checked(name: str, numbers: tuple[int, ...]) -> tuple[int, ...]:
    if not 1 <= numbers[0] <= MOST_OPERANDS:
        raise NoCall(f"{name} takes {numbers[0]} operands")
    return numbers


def _required(called: Any, skip: int = 0) -> list[inspect.Parameter] | None:
    """The parameters of a signature without a default, None if there is no signature."""
    try:
        parameters = [*inspect.signature(called).parameters.values()][skip:]
    except (TypeError, ValueError):
        return None
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one for one in parameters if one.default is inspect.Parameter.empty and one.kind not in variadic]


def _value(name: str, parameter: inspect.Parameter) -> str:
    """Source of an argument without a default, by keyword if it has to be. Raises NoCall for an annotation that does not say
    what it is."""
    if parameter.annotation not in VALUES:
        raise NoCall(f"the signature of {name} does not say what {parameter.name!r} may be")
    keyword = f"{parameter.name}=" if parameter.kind is inspect.Parameter.KEYWORD_ONLY else ""
    return keyword + VALUES[parameter.annotation]
