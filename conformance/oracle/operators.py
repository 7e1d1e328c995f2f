"""Table of the operators whose results are dyadic for dyadic arguments.

A dyadic result is exact in float32. Its ties are exact ties, and `EXACT_BAND` detects them. The results of every other
operator carry float32's rounding error, so `FLOAT_BAND` applies to them.
"""

import operator

import torch
import torch.nn.functional as F
from torch import nn

from .layers import FUNCTIONS, LAYERS

DYADIC_FUNCTIONS = frozenset(
    {
        *FUNCTIONS,
        *(F.relu, torch.relu, F.relu6, F.hardtanh, F.hardtanh_, torch.clamp, F.dropout, F.pad, torch.matmul),
        *(operator.add, operator.sub, operator.mul, torch.add, torch.sub, torch.mul, torch.einsum),
        *(torch.cat, torch.concat, torch.concatenate, torch.stack, torch.flatten, torch.narrow, torch.transpose),
        *(torch.permute, torch.squeeze, torch.unsqueeze, torch.repeat_interleave, F.pixel_shuffle, F.pixel_unshuffle),
        *(F.max_pool1d, F.max_pool2d, F.max_pool3d),
    }
)
DYADIC_MODULES = (
    *LAYERS,
    *(nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Dropout, nn.Identity, nn.PixelShuffle, nn.PixelUnshuffle, nn.Flatten),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.ConstantPad2d),
)
DYADIC_METHODS = frozenset(
    {
        *("relu", "clamp", "contiguous", "detach", "permute", "permute_copy", "repeat", "repeat_interleave"),
        *("reshape", "resize", "view", "squeeze", "unsqueeze", "transpose", "narrow", "flatten"),
    }
)
"""Names of `torch.Tensor` methods. The in-place form of a method, with its trailing underscore, is dyadic too."""
