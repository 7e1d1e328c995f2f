"""What ExecuTorch's `TOSAQuantizer` declares for Arm's backends: its table of patterns, each in every way of writing it, and
the operators whose tensors share qparams.

The table is `TOSA_QUANTIZER_SUPPORT_DICT`; the operators that share qparams are those of `SharedQspecQuantizer`.
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
from .quantizer import PTQ, WAYS, QuantizerConfig, QuantizerSpec, declared

ARM = "executorch.backends.arm"
TOSA = QuantizerSpec(
    'TOSAQuantizer(TosaCompileSpec("TOSA-1.0+INT"))',
    {
        **dict.fromkeys(("TOSAQuantizer", "get_symmetric_quantization_config"), f"{ARM}.quantizer.arm_quantizer"),
        "TOSAQuantizationConfig": f"{ARM}.quantizer.quantization_config",
        **dict.fromkeys(
            ("_get_int32_bias_qspec", "_get_int32_per_channel_bias_qspec"), f"{ARM}.quantizer.arm_quantizer_utils"
        ),
        "TosaCompileSpec": f"{ARM}.tosa.compile_spec",
    },
    "get_symmetric_quantization_config(is_per_channel={per_channel}, is_qat={qat}, is_dynamic={dynamic})",
    "pt2e-tosa",
    "TOSAQuantizationConfig({activation}, {output}, {weight}, {bias})",
    ("_get_int32_bias_qspec", "_get_int32_per_channel_bias_qspec"),
    ways=WAYS,
)

CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)
FUNCTIONAL_CONV = (F.conv1d, F.conv2d, F.conv3d, F.conv_transpose2d)
NORMS = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
    nn.ConvTranspose2d: nn.BatchNorm2d,
    nn.Linear: nn.BatchNorm1d,
}
LINEAR = (nn.Linear, F.linear)
RECTIFIERS = (*RELUS, nn.ReLU6)
"""Activations that are quantized with the layer before them: a ReLU, and a hardtanh whose lower bound is zero."""

BINARY = (operator.add, torch.add, operator.sub, torch.sub, operator.mul, torch.mul)
PRODUCTS = (torch.matmul, torch.addmm, torch.einsum)
FUNCTIONS = (
    *(nn.Hardswish, F.hardswish, nn.Hardsigmoid, F.hardsigmoid, nn.ELU, F.elu, nn.LeakyReLU, F.leaky_relu),
    *(nn.Sigmoid, torch.sigmoid, "sigmoid", nn.Tanh, torch.tanh, "tanh", nn.Softmax),
    *(nn.GLU, F.glu),
)
NORMALIZATIONS = (nn.LayerNorm, F.layer_norm, F.group_norm)
RESAMPLED = (
    *(nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d, nn.AvgPool2d, F.avg_pool2d, nn.MaxPool2d, F.max_pool2d),
    *(torch.mean, "mean", F.interpolate),
)
"""Patterns of the table whose result keeps the qparams of their input."""
SHARED = (
    *(nn.ReLU, F.relu, torch.relu, "relu", nn.ReLU6, nn.Hardtanh, F.hardtanh, F.hardtanh_),
    *(torch.clamp, "clamp", torch.cat, torch.concatenate, torch.stack),
    *(nn.Dropout, F.dropout, nn.PixelShuffle, F.pixel_shuffle, nn.PixelUnshuffle, F.pixel_unshuffle),
    *(F.pad, nn.ConstantPad2d, nn.Flatten, torch.flatten, "repeat", "repeat_interleave"),
    *(torch.permute, "permute", torch.transpose, "transpose", torch.squeeze, "squeeze", torch.unsqueeze, "unsqueeze"),
    *("reshape", "view"),  # and `contiguous`, which torch.export removes where it changes nothing
)

FURTHER = (
    *(torch.floor, torch.reciprocal, torch.atan, torch.sign, torch.erfinv, torch.round, F.celu, torch.abs, torch.sum),
    *(torch.full_like, torch.log10, torch.sinh, torch.cosh, F.gelu, torch.ceil, torch.log1p, torch.cumsum),
    *(torch.zeros_like, torch.remainder, torch.erf, torch.log, torch.tan, torch.expm1, F.selu, torch.asinh),
    *(torch.rsqrt, torch.sin, torch.cos, torch.acosh, torch.exp, torch.mm, torch.bmm, torch.full, torch.zeros),
    *(torch.ones, "fill_", torch.scalar_tensor, torch.div, torch.floor_divide, torch.logit),
    *(torch.sqrt, torch.var, torch.linalg.vector_norm, F.log_softmax, torch.arange, torch.embedding, torch.neg),
    *(F.cosine_similarity, F.scaled_dot_product_attention, torch.minimum, torch.maximum, torch.lt, torch.le),
    *(torch.gt, torch.ge, torch.eq, torch.ne, torch.lstm, torch.rnn_tanh, torch.rnn_relu, torch.gru, torch.asin),
    *(torch.acos, torch.atanh, F.grid_sample, torch.linspace, torch.eye, torch.moveaxis, "where"),
    *("select", "unbind", "split", "flip", "index_select", "gather", "expand", operator.getitem),
)
"""Operators of which the suite has no tables. They are tried from their signatures, and the rows of those that cannot be say
so."""

FURTHER_SHARED = (F.silu, "amin", "amax")

WEIGHTED, STATIC = (dtypes.STATIC_QINT8_SYMMETRIC_BIASED,), (dtypes.STATIC_QINT8_SYMMETRIC,)
"""Bounded as XNNPACK's, so that both have the same goldens: the quantizer's own bound of scales is lower, 2**-16."""
KEEPS = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT


def _rectified(patterns: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*pattern, rectifier) for pattern in patterns for rectifier in RECTIFIERS]


def get_tosa_declarations() -> QuantizerConfig:
    """Return what the quantizer declares, in the order of its table, and of which operators it shares qparams."""
    layers = (*CONV, *FUNCTIONAL_CONV)
    normed = list(NORMS.items())
    config = QuantizerConfig("tosa", TOSA)
    config.set_backend_pattern_configs(
        [
            *declared("conv", layers, WEIGHTED),
            *declared("conv + relu", _rectified((layer,) for layer in layers), WEIGHTED, affine=True),
            *declared("conv + batch_norm", normed, WEIGHTED),
            *declared("conv + batch_norm + relu", _rectified(normed), WEIGHTED, affine=True),
            *declared("linear", LINEAR, WEIGHTED),
            *declared("linear + relu", _rectified((layer,) for layer in LINEAR), WEIGHTED, affine=True),
            *declared("binary", BINARY, STATIC, PTQ),
            *declared("product", PRODUCTS, STATIC, PTQ),
            *declared("function", FUNCTIONS, STATIC, PTQ),
            *declared("normalization", NORMALIZATIONS, STATIC, PTQ),
            *declared("resampling", RESAMPLED, STATIC, PTQ, KEEPS),
            *declared("shared", SHARED, STATIC, PTQ, KEEPS),
            *declared("further", FURTHER, STATIC, PTQ),
            *declared("further, shared", FURTHER_SHARED, STATIC, PTQ, KEEPS),
        ]
    )
    return config
