"""Transformations that must not change the output.

torch-only, because reproduction scripts inline this source.
"""

import io
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

Call = Callable[[Sequence[Tensor]], list[Tensor]]
"""A model that takes its inputs as one sequence and returns its output tensors as a list."""


def part(inputs: Sequence[Tensor], axis: int, low: int, high: int, bags: bool) -> list[Tensor]:
    """Items from `low` up to `high` of the inputs along `axis`; with `bags`, inputs are indices and offsets of bags."""
    if not bags:
        return [x.narrow(axis, low, high - low).clone() for x in inputs]
    indices, offsets = inputs
    ends = torch.cat([offsets, torch.tensor([len(indices)])])
    return [indices[ends[low] : ends[high]], offsets[low:high] - offsets[low]]


def in_parts(call: Call, inputs: Sequence[Tensor], axis: int, cuts: Iterable[int], bags: bool = False) -> list[Tensor]:
    """The outputs of one call for each part of the batch between two cuts, concatenated along `axis`."""
    outputs = [call(part(inputs, axis, low, high, bags)) for low, high in pairwise(cuts)]
    return [torch.cat(parts, axis) for parts in zip(*outputs, strict=True)]


def order(count: int) -> Tensor:
    """A permutation of channels as int64 indices: the odd ones first."""
    return torch.cat([torch.arange(1, count, 2), torch.arange(0, count, 2)])


def shuffled(x: Tensor, dimension: int) -> Tensor:
    """`x` with the channels along a dimension permuted by `order`."""
    return x.index_select(dimension, order(x.shape[dimension]))


def unshuffled(x: Tensor, dimension: int) -> Tensor:
    """The inverse of `shuffled`."""
    return x.index_select(dimension, order(x.shape[dimension]).argsort())


def shuffle_channels(model: nn.Module, count: int, axis: int) -> None:
    """Permute the `count` output channels of a layer: along `axis` of weights, along axis 0 of biases and buffers."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            dimension = axis if tensor.dim() > 1 else 0
            if tensor.dim() and tensor.shape[dimension] == count:
                tensor.copy_(shuffled(tensor, dimension))


def on_threads(count: int, call: Call, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a call with `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return call(inputs)
    finally:
        torch.set_num_threads(before)


def loaded_state(model: nn.Module) -> Any:
    """The state_dict of the model saved and loaded with torch's own defaults."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    return torch.load(file)
