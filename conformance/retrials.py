"""Doing again, in another way, what has to come to the same; with torch alone, so that scripts quote it."""

import io
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Call = Callable[[Sequence[Tensor]], list[Tensor]]
"""A model that takes its inputs as one sequence and returns its output tensors as a list."""


def with_ends(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Give every item of every input, float32 of two or more dimensions, both ends of its range.

    The qparams that a dynamically quantized layer chooses are those of all that it is given: now every part has the same.
    """
    for x in inputs:
        if x.is_floating_point() and x.dim() > 1:
            low, high = x.min(), x.max()
            flat = x.view(len(x), -1)
            flat[:, 0], flat[:, -1] = low, high
    return inputs


def with_unequal_channels(model: nn.Module) -> None:
    """Divide the weights of every other output channel by 2 or 4, so that per-channel scales are not all the same."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(2.0 ** -(torch.arange(len(weight)) % 3).reshape(-1, *[1] * (weight.dim() - 1)))


def part(inputs: Sequence[Tensor], axis: int, low: int, high: int, bags: bool) -> list[Tensor]:
    """Items `low` to `high` of the inputs along `axis`; of `bags`, the second input says where each begins in the first."""
    if not bags:
        return [x.narrow(axis, low, high - low).clone() for x in inputs]
    indices, offsets = inputs
    ends = torch.cat([offsets, torch.tensor([len(indices)])])
    return [indices[ends[low] : ends[high]], offsets[low:high] - offsets[low]]


def in_parts(call: Call, inputs: Sequence[Tensor], axis: int, cuts: Iterable[int], bags: bool = False) -> list[Tensor]:
    """The outputs for the parts of the batch between the cuts, one call each, put together again."""
    outputs = [call(part(inputs, axis, low, high, bags)) for low, high in pairwise(cuts)]
    return [torch.cat(parts, axis) for parts in zip(*outputs, strict=True)]


def order(count: int) -> Tensor:
    """An order of channels: those of odd number first."""
    return torch.cat([torch.arange(1, count, 2), torch.arange(0, count, 2)])


def shuffled(x: Tensor, dimension: int) -> Tensor:
    """`x` with the channels along a dimension in another order."""
    return x.index_select(dimension, order(x.shape[dimension]))


def unshuffled(x: Tensor, dimension: int) -> Tensor:
    """`x` with the channels along a dimension in the order from which `shuffled` takes them."""
    return x.index_select(dimension, order(x.shape[dimension]).argsort())


def shuffle_channels(model: nn.Module, count: int, axis: int) -> None:
    """Shuffle the `count` output channels of a layer: `axis` of its weights, and what else there is one of for each."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            dimension = axis if tensor.dim() > 1 else 0
            if tensor.dim() and tensor.shape[dimension] == count:
                tensor.copy_(shuffled(tensor, dimension))


def on_threads(count: int, call: Call, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs as `count` threads compute them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return call(inputs)
    finally:
        torch.set_num_threads(before)


def scripted(model: nn.Module) -> Any:
    """The model compiled by TorchScript, saved and loaded."""
    saved = io.BytesIO()
    torch.jit.save(torch.jit.script(model), saved)
    saved.seek(0)
    return torch.jit.load(saved)  # type: ignore[no-untyped-call]


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
