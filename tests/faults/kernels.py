"""Faulty kernels: replacements of operators in torch's dispatcher, for every model that calls them."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from conformance.models import fx

from .fault import Fault, Replacement, code_fault


@dataclass(frozen=True)
class Call:
    """One call of an operator: its schema, its arguments by name, and the original kernel."""

    schema: Any
    arguments: Mapping[str, Any]
    kernel: Callable[..., Any]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def names(self) -> list[str]:
        return [argument.name for argument in self.schema.arguments]

    @property
    def x(self) -> Tensor:
        """The first argument."""
        first: Tensor = self.arguments[self.names[0]]
        return first

    def original(self, /, **changes: Any) -> Any:
        """The result of the original kernel, with some arguments changed."""
        arguments = {**self.arguments, **changes}
        keywords = {argument.name for argument in self.schema.arguments if argument.kwarg_only}
        positional = (arguments[name] for name in self.names if name not in keywords)
        return self.kernel(*positional, **{name: arguments[name] for name in keywords})

    def by(self, operator: Callable[..., Any], /, **changes: Any) -> Any:
        """The result of another operator for the same arguments, some of them changed."""
        return operator(*({**self.arguments, **changes}[name] for name in self.names))


Kernel = Callable[[Call], Any]

_LIBRARIES: dict[str, torch.library.Library] = {}


def override(name: str, overload: Any, key: str, faulty: Kernel) -> None:
    """Register a kernel in the place of an overload's own. `name` is its full name, `key` the dispatch key.

    A dispatch trace cannot tell it from torch's kernel. It cannot be removed, so only a child process may register it.
    Raises RuntimeError if the overload has no kernel for this key.
    """
    namespace, _, rest = name.partition("::")
    library = _LIBRARIES.setdefault(namespace, torch.library.Library(namespace, "IMPL"))  # type: ignore[no-untyped-call]
    schema, original = overload._schema, torch.library.get_kernel(name, key)

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = {argument.name: argument.default_value for argument in schema.arguments}
        arguments |= dict(zip(arguments, args, strict=False)) | kwargs
        return faulty(Call(schema, arguments, partial(original.call_boxed, keys)))

    library.impl(rest, kernel, key, with_keyset=True)  # type: ignore[no-untyped-call]


def _register(operator: str, faulty: Kernel) -> None:
    """Override every overload of an operator, for quantized tensors and for layers that take float ones."""
    namespace, _, name = operator.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name)
    takes_float = torch._C._dispatch_has_kernel_for_dispatch_key
    for overload in packet.overloads():
        function = getattr(packet, overload)
        if "out" in overload:
            continue
        full = function._schema.name + (f".{overload}" if overload != "default" else "")
        key = "CPU" if "quantized" in operator and takes_float(full, "CPU") else "QuantizedCPU"
        with suppress(RuntimeError):  # the overload has no kernel for this key
            override(full, function, key, faulty)


def faulty_kernel(operators: str, faulty: Kernel) -> Replacement:
    """Compute these operators, separated by spaces, with `faulty` as soon as a process lowers its first model."""

    def registering(lower: Any) -> Any:
        @cache
        def register() -> None:
            for operator in operators.split():
                _register(operator, faulty)

        def lowered(*args: Any) -> GraphModule:
            register()
            model: GraphModule = lower(*args)
            return model

        return lowered

    return Replacement(fx, "lower", registering)


def kernel_faults(group: str, *default_runs: str) -> Callable[..., Fault]:
    """A function that returns a fault of a group in the kernels of some operators, which are separated by spaces."""

    def fault(name: str, caught: str, operators: str, kernel: Kernel, *runs: str, survives: str = "") -> Fault:
        return code_fault(group, name, [faulty_kernel(operators, kernel)], runs or default_runs, caught, survives)

    return fault


# Changes of a result. They compute with integers only, because a conversion to float would raise alarms of its own.


def quantized(codes: Tensor, like: Tensor, scale: float | None = None, zero_point: int | None = None) -> Tensor:
    """A quantized tensor of codes, with the qparams of `like` unless others are passed."""
    return torch._make_per_tensor_quantized_tensor(
        codes.to(torch.int8 if like.dtype is torch.qint8 else torch.uint8),
        like.q_scale() if scale is None else scale,
        like.q_zero_point() if zero_point is None else zero_point,
    )


def after(change: Callable[[Tensor], Tensor]) -> Kernel:
    """Change the first or only result of a kernel."""

    def kernel(call: Call) -> Any:
        result = call.original()
        return change(result) if isinstance(result, Tensor) else (change(result[0]), *result[1:])

    return kernel


def codes(change: Callable[[Tensor], Tensor]) -> Kernel:
    """Change the codes (int32) of a kernel's result. Codes beyond 8 bits wrap around."""
    return after(lambda q: quantized(change(q.int_repr().int()), q))


def values(change: Callable[[Tensor], Tensor]) -> Kernel:
    """Change the float result of a kernel."""
    return after(lambda result: change(result.clone()))


def added(step: int, where: Callable[[Tensor], Tensor]) -> Kernel:
    """Add `step` to the codes where the mask `where(codes)` is true."""
    return codes(lambda c: c + step * where(c).int())


def at(index: Any) -> Callable[[Tensor], Tensor]:
    """A mask that is true at an index."""

    def mask(c: Tensor) -> Tensor:
        selected = torch.zeros(c.shape, dtype=torch.bool)
        selected[index] = True
        return selected

    return mask


# A reimplemented kernel, each step of which can be faulty.


def integers(x: Tensor) -> Tensor:
    """The codes of a quantized tensor minus its zero point (float64)."""
    return x.int_repr().double() - x.q_zero_point()


@dataclass(frozen=True)
class Requantization:
    """Requantization step by step, from an exact accumulator (float64, with bias) to codes."""

    multiplied: Callable[[Tensor, float], Tensor] = lambda accumulator, multiplier: accumulator * multiplier
    rounded: Callable[[Tensor, int], Tensor] = lambda position, zero_point: torch.round(position) + zero_point
    saturated: Callable[[Tensor, int, int], Tensor] = lambda code, low, high: code.clamp(low, high)
    accumulated: Callable[[Tensor], Tensor] = lambda accumulator: accumulator

    def __call__(self, call: Call) -> Tensor:
        """Compute a statically quantized linear layer with a per-tensor weight."""
        x, (weight, bias) = call["X"], call["W_prepack"].unpack()
        scale, zero_point = call["Y_scale_i"], call["Y_zero_point_i"]
        step = x.q_scale() * weight.q_scale()
        accumulator = integers(x) @ integers(weight).T
        if bias is not None:
            accumulator += (bias.double() / step).round()
        position = self.multiplied(self.accumulated(accumulator), step / scale)
        low, high = (-128, 127) if x.dtype is torch.qint8 else (0, 255)
        return quantized(self.saturated(self.rounded(position, zero_point), low, high), x, scale, zero_point)
