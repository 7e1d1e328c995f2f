"""What the engine executorch keeps of the promises of executorch: a config, a mapping, and a function that quantizes.

    from executorch import backend_config

Made of rows of torch 2.13.0+cpu on x86_64 avx512_vnni, 2026-11-30. This file needs torch alone.
48 of 172 claims hold in default use.
"""

import copy
import operator
import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
import torch.nn.functional as F
import torch.ao.quantization.quantize_fx
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig, get_executorch_backend_config
from typing import Any


Dtypes = tuple[torch.dtype | None, torch.dtype | None, torch.dtype | None, torch.dtype | None, bool | None]

LEFT_OUT: list[tuple[Any, Dtypes]] = [
    # executorch-batchnorm-in-float (pytorch/executorch#16533): XNNPACK runs a quantized BatchNorm in float
    (nn.BatchNorm2d, (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    # executorch-binary-relu-in-float: XNNPACK runs sub and mul with a ReLU in float
    ((operator.sub, nn.ReLU), (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ((operator.sub, nn.ReLU), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # silently in float
    ((operator.sub, F.relu), (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ((operator.sub, F.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # silently in float
    ((operator.sub, torch.relu), (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ((operator.sub, torch.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # silently in float
    ((torch.sub, nn.ReLU), (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ((torch.sub, nn.ReLU), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # silently in float
    ((torch.sub, F.relu), (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ((torch.sub, F.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # silently in float
    ((torch.sub, torch.relu), (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ((torch.sub, torch.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # silently in float
    ((operator.mul, nn.ReLU), (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ((operator.mul, nn.ReLU), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # silently in float
    ((operator.mul, F.relu), (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ((operator.mul, F.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # silently in float
    ((operator.mul, torch.relu), (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ((operator.mul, torch.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # silently in float
    ((torch.mul, nn.ReLU), (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ((torch.mul, nn.ReLU), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # silently in float
    ((torch.mul, F.relu), (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ((torch.mul, F.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # silently in float
    ((torch.mul, torch.relu), (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ((torch.mul, torch.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # silently in float
    # executorch-dynamic-float16: Conversion for ExecuTorch raises for dynamic float16
    (nn.Linear, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # refuses
    (F.linear, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # refuses
    # executorch-dynamic-per-tensor (pytorch/executorch#8891): XNNPACK runs dynamic linear with per-tensor weights in float
    (nn.Linear, (torch.quint8, torch.float32, torch.qint8, torch.float32, True)),  # silently in float
    (nn.Linear, (torch.qint8, torch.float32, torch.qint8, torch.float32, True)),  # silently in float
    (nnqat.Linear, (torch.quint8, torch.float32, torch.qint8, torch.float32, True)),  # silently in float
    (nnqat.Linear, (torch.qint8, torch.float32, torch.qint8, torch.float32, True)),  # silently in float
    (F.linear, (torch.quint8, torch.float32, torch.qint8, torch.float32, True)),  # silently in float
    (F.linear, (torch.qint8, torch.float32, torch.qint8, torch.float32, True)),  # silently in float
    # executorch-embedding-bag: ExecuTorch raises for EmbeddingBag
    (nn.EmbeddingBag, (torch.float32, torch.float32, torch.quint8, None, None)),  # refuses
    (nnqat.EmbeddingBag, (torch.float32, torch.float32, torch.quint8, None, None)),  # refuses
    # executorch-embedding-truncated: ExecuTorch's quantized embedding truncates weights instead of rounding them
    (nn.Embedding, (torch.float32, torch.float32, torch.quint8, None, None)),  # wrong numbers, silently
    (nnqat.Embedding, (torch.float32, torch.float32, torch.quint8, None, None)),  # wrong numbers, silently
    (F.embedding, (torch.float32, torch.float32, torch.quint8, None, None)),  # wrong numbers, silently
    # executorch-in-float: XNNPACK runs promised operators in float
    (F.elu, (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    (F.pad, (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    (F.leaky_relu, (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    (F.leaky_relu_, (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    (nn.ConstantPad2d, (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    (nn.ELU, (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    (nn.LeakyReLU, (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    (torch.mean, (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    (torch.squeeze, (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ('mean', (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ('squeeze', (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    ('squeeze_', (torch.qint8, torch.qint8, None, None, None)),  # silently in float
    # executorch-max-pool-stride (pytorch/executorch#21488): ExecuTorch raises IndexError for max_pool2d without a stride
    (F.max_pool2d, (torch.qint8, torch.qint8, None, None, None)),  # refuses
    (F.max_pool2d, (torch.quint8, torch.quint8, None, None, None)),  # refuses
    # executorch-quint8: XNNPACK treats unsigned activations as signed
    (nn.Linear, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    (nnqat.Linear, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    (F.linear, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    (nn.Conv2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    (nnqat.Conv2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    (F.conv2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    ((nn.Conv2d, nn.ReLU), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    ((nn.Conv2d, F.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nni.ConvReLU2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    (nniqat.ConvReLU2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    ((F.conv2d, nn.ReLU), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    ((F.conv2d, F.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    ((nn.Conv2d, nn.BatchNorm2d), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    ((nn.Conv2d, nn.BatchNorm2d, nn.ReLU), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    ((nn.Conv2d, nn.BatchNorm2d, F.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nniqat.ConvBn2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nniqat.ConvBnReLU2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    ((operator.add, nn.ReLU), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    ((operator.add, F.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    ((operator.add, torch.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    (operator.add, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    ((torch.add, nn.ReLU), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    ((torch.add, F.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    ((torch.add, torch.relu), (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (torch.add, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    (operator.sub, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    (torch.sub, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    (operator.mul, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    (torch.mul, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses
    (nn.Flatten, (torch.quint8, torch.quint8, None, None, None)),  # refuses
    (F.adaptive_avg_pool2d, (torch.quint8, torch.quint8, None, None, None)),  # refuses
    (F.elu, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    (F.hardtanh, (torch.quint8, torch.quint8, None, None, None)),  # wrong numbers, silently
    (F.pad, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    (F.relu, (torch.quint8, torch.quint8, None, None, None)),  # wrong numbers, silently
    (F.relu6, (torch.quint8, torch.quint8, None, None, None)),  # refuses
    (F.leaky_relu, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    (F.leaky_relu_, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    (nn.AdaptiveAvgPool2d, (torch.quint8, torch.quint8, None, None, None)),  # wrong numbers, silently
    (nn.ConstantPad2d, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    (nn.ELU, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    (nn.MaxPool2d, (torch.quint8, torch.quint8, None, None, None)),  # wrong numbers, silently
    (nn.ReLU6, (torch.quint8, torch.quint8, None, None, None)),  # wrong numbers, silently
    (nn.Hardtanh, (torch.quint8, torch.quint8, None, None, None)),  # wrong numbers, silently
    (nn.LeakyReLU, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    (torch.clamp, (torch.quint8, torch.quint8, None, None, None)),  # wrong numbers, silently
    (torch.flatten, (torch.quint8, torch.quint8, None, None, None)),  # refuses
    (torch.mean, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    (torch.permute, (torch.quint8, torch.quint8, None, None, None)),  # refuses
    (torch.permute_copy, (torch.quint8, torch.quint8, None, None, None)),  # refuses
    (torch.squeeze, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    ('clamp', (torch.quint8, torch.quint8, None, None, None)),  # refuses
    ('mean', (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    ('permute', (torch.quint8, torch.quint8, None, None, None)),  # refuses
    ('reshape', (torch.quint8, torch.quint8, None, None, None)),  # refuses
    ('relu', (torch.quint8, torch.quint8, None, None, None)),  # refuses
    ('relu_', (torch.quint8, torch.quint8, None, None, None)),  # refuses
    ('squeeze', (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    ('squeeze_', (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    (nn.BatchNorm2d, (torch.quint8, torch.quint8, None, None, None)),  # silently in float
    (torch.cat, (torch.quint8, torch.quint8, None, None, None)),  # refuses
    (torch.concat, (torch.quint8, torch.quint8, None, None, None)),  # refuses
    (torch.concatenate, (torch.quint8, torch.quint8, None, None, None)),  # refuses
    # fused-convbn-ptq: Post-training quantization leaves nni.ConvBn and LinearBn modules in float, between observers
    (nni.ConvBn2d, (torch.qint8, torch.qint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nni.ConvBn2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nni.ConvBnReLU2d, (torch.qint8, torch.qint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nni.ConvBnReLU2d, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nniqat.ConvBn2d, (torch.qint8, torch.qint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    (nniqat.ConvBnReLU2d, (torch.qint8, torch.qint8, torch.qint8, torch.float32, None)),  # wrong numbers, silently
    # qat-linear-float16 (pytorch/pytorch#100654): The QAT linear modules cannot be built for the promised float16 weights
    (nnqat.Linear, (torch.float16, torch.float32, torch.float16, torch.float32, True)),  # promise without effect
    # tensor-hardsigmoid: The configs promise tensor methods that do not exist
    ('leaky_relu', (torch.qint8, torch.qint8, None, None, None)),  # promise without effect
    ('leaky_relu', (torch.quint8, torch.quint8, None, None, None)),  # promise without effect
]
"""Entries of the config that do not hold, by their patterns and dtypes: of input, output, weight and bias, and whether it is
dynamic."""


def declared() -> BackendConfig:
    """Return the config with all that it promises."""
    backend_config = get_executorch_backend_config()
    return backend_config


def backend_config() -> BackendConfig:
    """Return the config without what does not hold."""
    config = BackendConfig("trusted_executorch")
    for entry in declared().configs:
        kept = copy.copy(entry)
        kept.dtype_configs = [one for one in entry.dtype_configs if not _is_left_out(entry, one)]
        if kept.dtype_configs:
            config.set_backend_pattern_config(kept)
    return config


def _is_left_out(entry: BackendPatternConfig, one: DTypeConfig) -> bool:
    pattern = entry.pattern if entry._pattern_complex_format is None else entry._pattern_complex_format
    dtypes = (one.input_dtype, one.output_dtype, one.weight_dtype, one.bias_dtype, one.is_dynamic)
    return (pattern, dtypes) in LEFT_OUT


