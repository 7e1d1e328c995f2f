"""Detects operators that write to their inputs without declaring it."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Write:
    """An undeclared write to a tensor argument, counted from 0, of a kernel; of a whole program where `kernel` is None."""

    kernel: str | None
    argument: int


def content(x: Tensor) -> Tensor:
    """A copy of a tensor's codes if it is quantized, else of its values."""
    return x.int_repr() if x.is_quantized else x.clone()


def unchanged(x: Tensor, before: Tensor) -> bool:
    """Whether a tensor still has the content of which `before` is a copy; NaN is equal to NaN."""
    now = x.int_repr() if x.is_quantized else x
    return torch.equal(now, before) or torch.equal(now.nan_to_num(), before.nan_to_num())


def overwritten(before: Sequence[Tensor], inputs: Sequence[Tensor]) -> tuple[Write, ...]:
    """The writes of a whole program to its inputs, of which `before` has copies."""
    pairs = enumerate(zip(before, inputs, strict=True))
    return tuple(Write(None, number) for number, (copy, x) in pairs if not torch.equal(x, copy))


def tensors_among(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among arguments of an operator, and in lists of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_among(value)


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that is never compiled."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from guarding each call against its compiler, which the first call would import: for over a second."""
        return False


class Writes(Watching):  # type: ignore[no-untyped-call]
    """Records in `found` each write of an operator to a tensor argument that its schema does not declare as mutable."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[Write] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.call(func, args, kwargs or {})

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call an operator and record its writes."""
        arguments = enumerate(tensors_among([*args, *kwargs.values()]))
        # the elements of a weight that oneDNN has packed cannot be read
        before = [(number, x, content(x)) for number, x in arguments if x.layout is torch.strided]
        result = func(*args, **kwargs)
        if func._schema.is_mutable:
            return result
        try:
            changed = [number for number, x, was in before if not unchanged(x, was)]
        except Exception:
            # tensors that were readable before the call no longer are: memory is damaged, so end the process here,
            # where it ends the same way every time
            os.abort()
        name = f"{func.namespace}.{func.overloadpacket.__name__}"
        self.found += [Write(name, number) for number in changed]
        return result
