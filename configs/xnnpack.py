"""What ExecuTorch's `XNNPACKQuantizer` declares: its `SUPPORTED_PATTERNS`, each in every way of writing it, and the operators
to which it passes qparams on.

The public `get_supported_operators()` of the quantizer lists five operators and knows nothing of the others.
"""

import operator
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.backend_config import ObservationType

from . import dtypes
from .families import RELUS
from .quantizer import WAYS, QuantizerConfig, QuantizerSpec, declared

MODULE = "executorch.backends.xnnpack.quantizer.xnnpack_quantizer"
XNNPACK = QuantizerSpec(
    "XNNPACKQuantizer()",
    dict.fromkeys(("XNNPACKQuantizer", "get_symmetric_quantization_config"), MODULE),
    "get_symmetric_quantization_config(is_per_channel={per_channel}, is_qat={qat}, is_dynamic={dynamic})",
    "pt2e-xnnpack",
    # its set_module_name takes no None
    leaves="set_filter_function(lambda node: name not in str(node.meta.get('nn_module_stack')))",
    ways=WAYS,
)

LINEAR = (nn.Linear, F.linear)
CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d, F.conv1d, F.conv2d, F.conv3d)
CONV_TRANSPOSE = (
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    *(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
)
NORMS = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.ConvTranspose1d: nn.BatchNorm1d,
    nn.ConvTranspose2d: nn.BatchNorm2d,
}
"""The modules whose norm is folded, with the norm. No pattern for three dimensions is matched with a norm."""
ADD, MUL = (operator.add, torch.add), (operator.mul, torch.mul)
POOLS = (nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d)

PASSED_ON = (
    *(nn.Hardtanh, F.hardtanh, F.hardtanh_, nn.ReLU6, nn.MaxPool2d, F.max_pool2d),
    *(torch.mean, "mean", torch.permute, "permute", torch.permute_copy, torch.transpose, "transpose"),
    *(torch.squeeze, "squeeze", "view", "reshape", torch.flatten, nn.Flatten),
)
"""Operators that get the qparams of their input behind an annotated operator. The quantizer declares them nowhere; a ReLU is
one of them, and is fused with a layer before it."""
SHARES = "shares_qparams"
"""What stands in place of the quantizer's name for a pattern."""

WEIGHTED = (dtypes.STATIC_QINT8_SYMMETRIC_WEIGHTED,)
WEIGHTED_DYNAMIC = (*WEIGHTED, dtypes.DYNAMIC_QINT8_SYMMETRIC)
STATIC = (dtypes.STATIC_QINT8_SYMMETRIC,)
SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT


def _relu(operators: Iterable[Any]) -> list[Any]:
    return [(*(one if isinstance(one, tuple) else (one,)), relu) for one in operators for relu in RELUS]


def get_xnnpack_declarations() -> QuantizerConfig:
    """Return what the quantizer declares, in the order of its `SUPPORTED_PATTERNS`, and to what it passes qparams on."""
    norms = {
        name: [(layer, norm) for layer, norm in NORMS.items() if layer in layers]
        for name, layers in (("conv", CONV), ("conv_transpose", CONV_TRANSPOSE))
    }
    config = QuantizerConfig("xnnpack", XNNPACK)
    config.set_backend_pattern_configs(
        [
            *declared("conv_bn_relu", _relu(norms["conv"]), WEIGHTED, ("qat",)),
            *declared("conv_bn", norms["conv"], WEIGHTED, ("qat",)),
            *declared("conv_transpose_bn_relu", _relu(norms["conv_transpose"]), WEIGHTED, ("qat",)),
            *declared("conv_transpose_bn", norms["conv_transpose"], WEIGHTED, ("qat",)),
            *declared("linear_relu", _relu(LINEAR), WEIGHTED),
            *declared("linear", LINEAR, WEIGHTED_DYNAMIC),
            *declared("conv", CONV, WEIGHTED_DYNAMIC),
            *declared("conv_transpose", CONV_TRANSPOSE, WEIGHTED_DYNAMIC),
            *declared("conv_relu", _relu(CONV), WEIGHTED),
            *declared("conv_transpose_relu", _relu(CONV_TRANSPOSE), WEIGHTED),
            *declared("adaptive_avg_pool2d", POOLS, STATIC, observation=SHARED),
            *declared("add_relu", _relu(ADD), STATIC),
            *declared("add", ADD, STATIC),
            *declared("mul_relu", _relu(MUL), STATIC),
            *declared("mul", MUL, STATIC),
            *declared("cat", (torch.cat,), STATIC, observation=SHARED),
            # the weights are those of the layer before the operator
            *declared(SHARES, PASSED_ON, WEIGHTED, observation=SHARED, behind=True),
        ]
    )
    return config
