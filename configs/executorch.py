"""The config of ExecuTorch's XNNPACK delegate."""

import operator

import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig

from . import dtypes, families

BINARY_OPS = (operator.add, torch.add, operator.sub, torch.sub, operator.mul, torch.mul)

SHARE_QPARAMS_OPS = (
    *(nn.Flatten, F.adaptive_avg_pool2d, F.elu, F.hardtanh, F.max_pool2d),
    *(F.pad, F.relu, F.relu6, F.leaky_relu, F.leaky_relu_),
    *(nn.AdaptiveAvgPool2d, nn.ConstantPad2d, nn.ELU, nn.MaxPool2d, nn.ReLU6, nn.Hardtanh, nn.LeakyReLU),
    *(torch.clamp, torch.flatten, torch.mean, torch.permute, torch.permute_copy, torch.squeeze),
    *("clamp", "mean", "permute", "reshape"),
    *("relu", "relu_", "squeeze", "squeeze_", "leaky_relu"),
)

CATS = (torch.cat, torch.concat, torch.concatenate)


def get_executorch_backend_config() -> BackendConfig:
    """Return a new config of the operators that torch lowers through ExecuTorch."""
    static = (dtypes.STATIC_QINT8_SYMMETRIC, dtypes.STATIC_QUINT8)
    weighted = (dtypes.STATIC_QINT8_SYMMETRIC_WEIGHTED, dtypes.STATIC_QUINT8_WEIGHTED)
    dynamic = (dtypes.DYNAMIC_QUINT8, dtypes.DYNAMIC_QINT8_SYMMETRIC, dtypes.DYNAMIC_FLOAT16)
    weight_only = (dtypes.WEIGHT_ONLY_QUINT8,)
    return BackendConfig("executorch").set_backend_pattern_configs(
        [
            *families.linear_alone((*weighted, *dynamic)),
            *families.convolution(2, weighted),
            # torch's config names a weight dtype for these operators, though they have no weight.
            *families.binary(BINARY_OPS, (dtypes.STATIC_QINT8_SYMMETRIC, dtypes.STATIC_QUINT8_WEIGHTED)),
            *families.operators(SHARE_QPARAMS_OPS, static, families.SHARED_OBSERVER),
            *families.operators((nn.BatchNorm2d,), static),
            *families.operators(CATS, static, families.SHARED_OBSERVER),
            *families.embedding(weight_only),
            families.functional(F.embedding, weight_only, weight=1),
            *families.embedding_bag(weight_only),
        ]
    )
