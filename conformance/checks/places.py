"""Where in a tensor elements lie, in words."""

from collections.abc import Iterator

import torch
from torch import Tensor

WIDTHS = (64, 32, 16, 8, 4, 2)
"""Widths of vectors and periods, the greatest first."""


def place_of(wrong: Tensor) -> str:
    """Where the elements of a mask (bool, of any shape) lie, with dimensions counted from 0: `at the last index of dimension
    3`. Empty if they lie in no part that has a name, and for a single one, which has an index."""
    if bool(wrong.all()) or int(wrong.sum()) < 2:
        return ""
    parts = [*filter(None, map(_along, _hit(wrong), range(wrong.dim())))]
    return _in_vectors(wrong) or " and ".join(parts)


def _hit(wrong: Tensor) -> Iterator[list[bool]]:
    """For each dimension which of its indices have an element."""
    for axis in range(wrong.dim()):
        yield wrong.movedim(axis, 0).reshape(wrong.shape[axis], -1).any(1).tolist()


def _along(hit: list[bool], axis: int) -> str:
    """Which indices of a dimension are hit; empty for all of them, and where they have no order."""
    size, indices = len(hit), [index for index, one in enumerate(hit) if one]
    if len(indices) == size:
        return ""
    if len(indices) == 1:
        index = indices[0]
        return f"at {'the last index' if index == size - 1 else f'index {index}'} of dimension {axis}"
    period = next((width for width in WIDTHS if len({index % width for index in indices}) == 1), 0)
    if period and indices == [*range(indices[0], size, period)]:
        return f"at every {period}th index of dimension {axis}, from {indices[0]} on"
    if indices == [*range(indices[0], size)]:
        return f"from index {indices[0]} of dimension {axis} on"
    if indices == [*range(len(indices))]:
        return f"before index {len(indices)} of dimension {axis}"
    return ""


def _in_vectors(wrong: Tensor) -> str:
    """Which elements they are for a kernel that goes by vectors through a contiguous tensor of several dimensions: at least
    half of those behind the last whole vector, or of one lane, and no others."""
    places, total = wrong.flatten().nonzero().flatten(), wrong.numel()
    first, most = int(places[0]), 2 * len(places)
    if wrong.dim() < 2:
        return ""
    for width in WIDTHS:
        if width < total and first >= total - total % width and most >= total % width:
            return f"after the last whole vector of {width} elements"
    for width in WIDTHS[:-1]:
        if most >= total // width > 1 and wrong.shape[-1] % width and len(torch.unique(places % width)) == 1:
            return f"at elements {first % width} modulo {width}"
    return ""
