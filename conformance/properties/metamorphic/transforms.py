"""Doing again, in another way, what has to come to the same; with torch alone, so that scripts quote it."""

import io
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

Call = Callable[[Sequence[Tensor]], list[Tensor]]
"""A model that takes its inputs as one sequence and returns its output tensors as a list."""


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
