"""What ExecuTorch's `CortexMQuantizer` declares for CMSIS-NN: its table of patterns, each in every way of writing it.

The table is `CORTEX_M_QUANTIZER_SUPPORT_DICT`. The quantizer takes no configuration: convolutions have a scale for each
output channel, a linear layer has one for all weights. Images have to be in channels-last memory format.
"""

import operator
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.backend_config import ObservationType

from . import dtypes
from .families import RELUS
from .quantizer import PTQ, QuantizerConfig, QuantizerSpec, declared

CORTEX_M = QuantizerSpec(
    "CortexMQuantizer()",
    {"CortexMQuantizer": "executorch.backends.cortex_m.quantizer.quantizer"},
    "None",
    "pt2e-cortex-m",
    None,
)

ADD, MUL = (operator.add, torch.add), (operator.mul, torch.mul)
LINEAR = (nn.Linear, F.linear)
CONV, CONV_TRANSPOSE = (nn.Conv2d, F.conv2d), (nn.ConvTranspose2d, F.conv_transpose2d)
CLAMPS = (*RELUS, nn.Hardtanh, F.hardtanh, nn.ReLU6, torch.clamp)
AFTER_LAYERS = (*CLAMPS, nn.Hardsigmoid, F.hardsigmoid)
MAX_POOL, AVG_POOL = (nn.MaxPool2d, F.max_pool2d), (nn.AvgPool2d, F.avg_pool2d)
FUNCTIONS = (nn.Sigmoid, torch.sigmoid, "sigmoid", nn.Tanh, torch.tanh, "tanh")
FURTHER = (F.silu,)
"""Operators of which the suite has no tables: they are tried from their signatures."""

WEIGHTED, STATIC = (dtypes.STATIC_QINT8_BIASED,), (dtypes.STATIC_QINT8,)
KEEPS = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT

_declared = partial(declared, flows=PTQ, channels_last=True, affine=True)


def _with(operators: Iterable[Any], after: Iterable[Any]) -> list[Any]:
    """The operators alone, and each with each of those after it."""
    return [*operators, *((one, two) for one in operators for two in after)]


def get_cortexm_declarations() -> QuantizerConfig:
    """Return what the quantizer declares, in the order of its table."""
    config = QuantizerConfig("cortexm", CORTEX_M)
    config.set_backend_pattern_configs(
        [
            *_declared("add", _with(ADD, CLAMPS), STATIC),
            *_declared("mul", MUL, STATIC),
            *_declared("hardswish", (nn.Hardswish, F.hardswish), STATIC),
            *_declared("linear", _with(LINEAR, AFTER_LAYERS), WEIGHTED, per_channel=False),
            *_declared("conv2d", _with(CONV, AFTER_LAYERS), WEIGHTED, per_channel=True),
            *_declared("softmax", (nn.Softmax,), STATIC),
            *_declared("conv_transpose2d", _with(CONV_TRANSPOSE, AFTER_LAYERS), WEIGHTED, per_channel=True),
            *_declared("avg_pool2d", AVG_POOL, STATIC, observation=KEEPS),
            *_declared("max_pool2d", _with(MAX_POOL, CLAMPS), STATIC, observation=KEEPS),
            *_declared("bmm", (torch.matmul,), STATIC),
            *_declared("activation", FUNCTIONS, STATIC),
            *_declared("further", FURTHER, STATIC),
        ]
    )
    return config
