"""Detects operators that write to their inputs without declaring it."""

import os
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def content(x: Tensor) -> Tensor:
    """A copy of what a tensor holds: codes, or values with a number in the place of those that are none."""
    return x.int_repr() if x.is_quantized else x.nan_to_num()


class Writes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Finds operators that write to a tensor which they are given, against what they declare."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [x for x in tree_leaves([args, kwargs or {}]) if isinstance(x, Tensor)]
        before = [content(x) for x in given]
        result = func(*args, **(kwargs or {}))
        if func._schema.is_mutable:
            return result
        try:
            same = [torch.equal(was, content(x)) for was, x in zip(before, given, strict=True)]
        except Exception:
            # what could be read before the call cannot be now: memory is damaged, and how the process ends is chance
            os.abort()
        name = f"{func.namespace}.{func.overloadpacket.__name__}"
        self.found += [f"{name} writes to its tensor {number}" for number, kept in enumerate(same) if not kept]
        return result
