"""Options of modules and functions as text."""

from typing import Any

import torch
from torch import Tensor, nn

OPTIONS = (
    *("in_channels", "out_channels", "in_features", "out_features", "kernel_size", "stride", "padding", "dilation"),
    *("groups", "bias", "output_padding", "padding_mode", "ceil_mode", "count_include_pad", "divisor_override"),
    *("output_size", "num_features", "num_groups", "num_channels", "affine", "negative_slope", "inplace", "dim"),
    *("start_dim", "end_dim", "scale_factor", "mode", "align_corners", "size", "num_embeddings", "embedding_dim", "p"),
    *("upscale_factor", "normalized_shape", "min_val", "max_val", "alpha", "approximate", "include_last_offset"),
)
"""Attributes of modules that are features of a layer."""

CHANNELS = frozenset({"in_channels", "out_channels", "in_features", "out_features", "num_features", "num_channels"})
"""Options that count channels."""


def options_of(module: nn.Module, *, channels: bool = True) -> dict[str, str]:
    """The options of a module as text, by name, with or without those that count channels."""
    names = [name for name in OPTIONS if hasattr(module, name) and (channels or name not in CHANNELS)]
    return {name: text_of(getattr(module, name)) for name in names}


def is_constant(value: Any) -> bool:
    """Whether an argument is a number, a text, a dtype, or a sequence of such."""
    if isinstance(value, tuple | list):
        return bool(value) and all(map(is_constant, value))
    return isinstance(value, int | float | str | bool | torch.dtype)


def text_of(value: Any) -> str:
    """An option as text: numbers of a sequence joined by `x`, whether a tensor is there."""
    if isinstance(value, tuple | list):
        return "x".join(map(text_of, value))
    return str(True) if isinstance(value, Tensor) else str(value)
