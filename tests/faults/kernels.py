"""Kernels that lie: an operator of torch's dispatcher gives something else, whatever model it stands in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from conformance.models import fx

from .fault import Instead


@dataclass(frozen=True)
class Call:
    """One call of an operator: its arguments by the names of its schema, and the kernel that it is meant for."""

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

    def honestly(self, /, **changes: Any) -> Any:
        """What the kernel gives, with some arguments changed."""
        given = {**self.arguments, **changes}
        only = {argument.name for argument in self.schema.arguments if argument.kwarg_only}
        return self.kernel(
            *(given[name] for name in self.names if name not in only), **{name: given[name] for name in only}
        )

    def by(self, operator: Callable[..., Any], /, **changes: Any) -> Any:
        """What another operator gives for the same arguments."""
        return operator(*({**self.arguments, **changes}[name] for name in self.names))


Kernel = Callable[[Call], Any]

_LIBRARIES: dict[str, torch.library.Library] = {}


def _register(operator: str, lie: Kernel) -> None:
    """Put a kernel into the dispatcher in the place of the one of every overload, for quantized tensors and for layers that
    take float ones. It is as torch's own to whoever looks at the dispatcher; only in a child, as it stays there."""
    namespace, _, name = operator.partition(".")
    library = _LIBRARIES.setdefault(namespace, torch.library.Library(namespace, "IMPL"))  # type: ignore[no-untyped-call]
    packet = getattr(getattr(torch.ops, namespace), name)
    takes_float = torch._C._dispatch_has_kernel_for_dispatch_key
    for overload in packet.overloads():
        function = getattr(packet, overload)
        if "out" in overload:
            continue
        full = function._schema.name + (f".{overload}" if overload != "default" else "")
        key = "CPU" if "quantized" in operator and takes_float(full, "CPU") else "QuantizedCPU"
        try:
            honest = torch.library.get_kernel(full, key)
        except RuntimeError:  # an overload for something else
            continue

        def kernel(keys: Any, *args: Any, _schema: Any = function._schema, _honest: Any = honest, **kwargs: Any) -> Any:
            given = {argument.name: argument.default_value for argument in _schema.arguments}
            given |= dict(zip(given, args, strict=False)) | kwargs
            return lie(Call(_schema, given, partial(_honest.call_boxed, keys)))

        library.impl(full.partition("::")[2], kernel, key, with_keyset=True)  # type: ignore[no-untyped-call]


def lying(operators: str, lie: Kernel) -> Instead:
    """From the first lowered model on, these operators, separated by spaces, are computed by `lie`."""

    def lies(lower: Any) -> Any:
        @cache
        def register() -> None:
            for operator in operators.split():
                _register(operator, lie)

        def lowered(*given: Any) -> GraphModule:
            register()
            model: GraphModule = lower(*given)
            return model

        return lowered

    return Instead(fx, "lower", lies)


# Results changed after the fact, in integers alone: nothing may convert to float but the fault that is about it.


def quantized(codes: Tensor, like: Tensor, scale: float | None = None, zero_point: int | None = None) -> Tensor:
    """Codes as a tensor with the qparams of another."""
    return torch._make_per_tensor_quantized_tensor(
        codes.to(torch.int8 if like.dtype is torch.qint8 else torch.uint8),
        like.q_scale() if scale is None else scale,
        like.q_zero_point() if zero_point is None else zero_point,
    )


def after(change: Callable[[Tensor], Tensor]) -> Kernel:
    """Change a kernel's result, or its first one."""

    def kernel(call: Call) -> Any:
        result = call.honestly()
        return change(result) if isinstance(result, Tensor) else (change(result[0]), *result[1:])

    return kernel


def codes(change: Callable[[Tensor], Tensor]) -> Kernel:
    """Change the codes (int32) of a kernel's result, which then wrap around as 8 bits do."""
    return after(lambda q: quantized(change(q.int_repr().int()), q))


def values(change: Callable[[Tensor], Tensor]) -> Kernel:
    """Change a kernel's float result."""
    return after(lambda result: change(result.clone()))


def added(step: int, where: Callable[[Tensor], Tensor]) -> Kernel:
    """Codes are off by `step` where the mask, which is given the codes, says so."""
    return codes(lambda c: c + step * where(c).int())


def at(index: Any) -> Callable[[Tensor], Tensor]:
    """A mask of some elements."""

    def mask(c: Tensor) -> Tensor:
        made = torch.zeros(c.shape, dtype=torch.bool)
        made[index] = True
        return made

    return mask


# Kernels computed anew, so that they may err in the middle.


def integers(x: Tensor) -> Tensor:
    """A quantized tensor's codes less its zero point, in float64."""
    return x.int_repr().double() - x.q_zero_point()


@dataclass(frozen=True)
class Requantization:
    """Each step of a kernel's end: from an accumulator (float64, exact, bias included) to codes."""

    multiplied: Callable[[Tensor, float], Tensor] = lambda accumulator, multiplier: accumulator * multiplier
    rounded: Callable[[Tensor, int], Tensor] = lambda position, zero_point: torch.round(position) + zero_point
    saturated: Callable[[Tensor, int, int], Tensor] = lambda code, low, high: code.clamp(low, high)
    accumulated: Callable[[Tensor], Tensor] = lambda accumulator: accumulator

    def __call__(self, call: Call) -> Tensor:
        """A linear layer, statically quantized, per tensor."""
        x, (weight, bias) = call["X"], call["W_prepack"].unpack()
        scale, zero_point = call["Y_scale_i"], call["Y_zero_point_i"]
        step = x.q_scale() * weight.q_scale()
        accumulator = integers(x) @ integers(weight).T
        if bias is not None:
            accumulator += (bias.double() / step).round()
        position = self.multiplied(self.accumulated(accumulator), step / scale)
        low, high = (-128, 127) if x.dtype is torch.qint8 else (0, 255)
        return quantized(self.saturated(self.rounded(position, zero_point), low, high), x, scale, zero_point)
