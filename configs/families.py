"""Operator families: entries of related patterns, as any backend that supports them declares them.

Every family takes the dtype configs a backend supports for it and returns new entries, in the order in which torch
tries them. Nothing is shared between entries, so one promise can be altered without altering another.
"""

import copy
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
import torch.ao.nn.quantized.reference as nnqr
import torch.ao.quantization.backend_config.utils  # BackendConfig's methods need it and do not import it
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.backend_config import BackendPatternConfig, DTypeConfig, ObservationType
from torch.ao.quantization.fuser_method_mappings import (
    fuse_conv_bn,
    fuse_conv_bn_relu,
    fuse_convtranspose_bn,
    fuse_linear_bn,
)

Module = type[nn.Module]
DTypes = Sequence[DTypeConfig]
Entries = list[BackendPatternConfig]

OWN_OBSERVER = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
SHARED_OBSERVER = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
NOT_OBSERVED = ObservationType.INPUT_OUTPUT_NOT_OBSERVED

RELUS = (nn.ReLU, F.relu)

BINARY_OPS = (operator.add, torch.add, operator.mul, torch.mul)

DEFAULT_OPS = (
    *(nn.ELU, nn.LeakyReLU, nn.Hardswish),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    *(nn.Dropout, nn.PReLU),
    *(F.elu, F.hardswish, F.leaky_relu, F.dropout),
)

# (scale, zero point) with which 256 codes span exactly the functions' ranges: [0, 1) and [-1, 1).
FIXED_QPARAMS_OPS = {
    (1 / 256, 0): (
        *(nn.Hardsigmoid, F.hardsigmoid, "hardsigmoid", "hardsigmoid_"),
        *(nn.Sigmoid, torch.sigmoid, "sigmoid", "sigmoid_", nn.Softmax),
    ),
    (2 / 256, 128): (nn.Tanh, torch.tanh, "tanh", "tanh_"),
}

SHARE_QPARAMS_OPS = (
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.Hardtanh, nn.Identity),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    *(nn.PixelShuffle, nn.PixelUnshuffle, nn.ReLU, nn.ReLU6),
    *(F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d),
    *(F.hardtanh, F.hardtanh_, F.interpolate),
    *(F.max_pool1d, F.max_pool2d, F.max_pool3d),
    *(F.pixel_shuffle, F.pixel_unshuffle, F.relu, F.relu6),
    *(F.avg_pool1d, F.avg_pool2d, F.avg_pool3d),
    *(torch.clamp, torch.flatten, torch.mean, torch.narrow, torch.repeat_interleave),
    *(torch.transpose, torch.squeeze, torch.stack, torch.unsqueeze, operator.floordiv),
    *("contiguous", "clamp", "detach", "detach_", "mean", "permute"),
    *("repeat", "repeat_interleave", "reshape", "resize_", "relu", "relu_"),
    *("squeeze", "squeeze_", "transpose", "unsqueeze", "unsqueeze_", "view"),
)


def entry(
    pattern: Any,
    dtypes: DTypes,
    observation: ObservationType = OWN_OBSERVER,
    *,
    root: Module | None = None,
    reference: Module | None = None,
    qat: Module | None = None,
    fused: Module | None = None,
    fuser: Callable[..., nn.Module] | None = None,
) -> BackendPatternConfig:
    """Return the entry of one pattern, with its own copies of `dtypes`; torch takes None as unset."""
    config = BackendPatternConfig(pattern).set_observation_type(observation)
    config.dtype_configs = [copy.deepcopy(dtype) for dtype in dtypes]
    config.root_module = root
    config.reference_quantized_module = reference
    config.qat_module = qat
    config.fused_module = fused
    config.fuser_method = fuser
    return config


def functional(function: Callable[..., Any], dtypes: DTypes, **index: int) -> BackendPatternConfig:
    """Return the entry of a function; `index` gives the positions of its parameters by name, as opposed to activations."""
    return entry(function, dtypes)._set_input_type_to_index(index)


def operators(patterns: Iterable[Any], dtypes: DTypes, observation: ObservationType = OWN_OBSERVER) -> Entries:
    """Return one entry per pattern, for operators that differ only in their observation type."""
    return [entry(pattern, dtypes, observation) for pattern in patterns]


def with_qat(module: Module, qat: Module, dtypes: DTypes, *, root: Module, reference: Module) -> Entries:
    """Return the entries of a module and of its QAT module; both convert to the same reference module."""
    return [
        entry(module, dtypes, root=root, reference=reference, qat=qat),
        entry(qat, dtypes, root=root, reference=reference),
    ]


def in_sequence(fused: Module) -> Callable[..., nn.Module]:
    """Return the fuser method of a fused module that contains its two parts unchanged."""

    def fuse(is_qat: bool, first: nn.Module, second: nn.Module) -> nn.Module:
        return fused(first, second)

    return fuse


def pairs(first: Any, seconds: Iterable[Any], dtypes: DTypes, fused: Module | None = None) -> Entries:
    """Return an entry for `first` followed by each of `seconds`, fused to `fused` if there is such a module."""
    fuser = None if fused is None else in_sequence(fused)
    return [entry((first, second), dtypes, fused=fused, fuser=fuser) for second in seconds]


def linear_alone(dtypes: DTypes) -> Entries:
    """Return the entries of linear as module, QAT module and function."""
    return [
        *with_qat(nn.Linear, nnqat.Linear, dtypes, root=nn.Linear, reference=nnqr.Linear),
        functional(F.linear, dtypes, weight=1, bias=2),
    ]


def linear(dtypes: DTypes) -> Entries:
    """Return the entries of linear, alone and followed by ReLU or batch norm."""
    ends: dict[str, Module] = {"root": nn.Linear, "reference": nnqr.Linear}
    return [
        *linear_alone(dtypes),
        *pairs(nn.Linear, RELUS, dtypes, nni.LinearReLU),
        *with_qat(nni.LinearReLU, nniqat.LinearReLU, dtypes, **ends),
        *pairs(F.linear, RELUS, dtypes),
        entry((nn.Linear, nn.BatchNorm1d), dtypes, fused=nni.LinearBn1d, fuser=fuse_linear_bn),
        *with_qat(nni.LinearBn1d, nniqat.LinearBn1d, dtypes, **ends),
    ]


def convolution(dims: int, dtypes: DTypes) -> Entries:
    """Return the entries of `dims`-dimensional convolution, alone and followed by batch norm, ReLU or both."""
    conv, batch_norm = getattr(nn, f"Conv{dims}d"), getattr(nn, f"BatchNorm{dims}d")
    function = getattr(F, f"conv{dims}d")
    fused = {kind: getattr(nni, f"Conv{kind}{dims}d") for kind in ("ReLU", "Bn", "BnReLU")}
    qat = {kind: getattr(nniqat, f"Conv{kind}{dims}d") for kind in fused}
    ends = {"root": conv, "reference": getattr(nnqr, f"Conv{dims}d")}
    with_both = {"fused": fused["BnReLU"], "fuser": fuse_conv_bn_relu}
    return [
        *with_qat(conv, getattr(nnqat, f"Conv{dims}d"), dtypes, **ends),
        functional(function, dtypes, weight=1, bias=2),
        *pairs(conv, RELUS, dtypes, fused["ReLU"]),
        entry(fused["ReLU"], dtypes, qat=qat["ReLU"]),
        entry(qat["ReLU"], dtypes, **ends),
        *pairs(function, RELUS, dtypes),
        entry((conv, batch_norm), dtypes, fused=fused["Bn"], fuser=fuse_conv_bn),
        entry((conv, batch_norm, nn.ReLU), dtypes, **with_both),
        entry((conv, batch_norm, F.relu), dtypes, root=conv, **with_both),
        *(entry(fused[kind], dtypes, qat=qat[kind]) for kind in ("Bn", "BnReLU")),
        *(entry(qat[kind], dtypes, **ends) for kind in ("Bn", "BnReLU")),
    ]


def transposed_convolution(dims: int, dtypes: DTypes) -> Entries:
    """Return the entries of `dims`-dimensional transposed convolution, alone and followed by batch norm."""
    conv, batch_norm = getattr(nn, f"ConvTranspose{dims}d"), getattr(nn, f"BatchNorm{dims}d")
    ends = {"root": conv, "reference": getattr(nnqr, f"ConvTranspose{dims}d")}
    return [
        entry(conv, dtypes, **ends),
        entry((conv, batch_norm), dtypes, fuser=fuse_convtranspose_bn, **ends),
        functional(getattr(F, f"conv_transpose{dims}d"), dtypes, weight=1, bias=2),
    ]


def convolutions(dtypes: DTypes) -> Entries:
    """Return the entries of every convolution, plain and transposed, in 1, 2 and 3 dimensions."""
    return [
        config
        for dims in (1, 2, 3)
        for family in (convolution, transposed_convolution)
        for config in family(dims, dtypes)
    ]


def binary(ops: Iterable[Callable[..., Any]], dtypes: DTypes) -> Entries:
    """Return the entries of binary operators, alone and followed by ReLU; with a scalar they share an observer."""
    return [
        entry(pattern, dtypes)._set_num_tensor_args_to_observation_type(
            {0: OWN_OBSERVER, 1: SHARED_OBSERVER, 2: OWN_OBSERVER}
        )
        for op in ops
        for pattern in ((op, nn.ReLU), (op, F.relu), (op, torch.relu), op)
    ]


def matmul(dtypes: DTypes) -> Entries:
    """Return the entry of matrix multiplication, which has no scalar form."""
    return operators((torch.matmul,), dtypes)


def cat(dtypes: DTypes) -> Entries:
    """Return the entry of concatenation."""
    return operators((torch.cat,), dtypes, SHARED_OBSERVER)


def default_ops(dtypes: DTypes) -> Entries:
    """Return the entries of the operators without quantized weights that observe their output."""
    return [
        *operators(DEFAULT_OPS, dtypes),
        functional(F.group_norm, dtypes, weight=2, bias=3),
        functional(F.instance_norm, dtypes, weight=3, bias=4),
    ]


def fixed_qparams_ops(dtypes: DTypes) -> Entries:
    """Return the entries of functions of fixed range; every quint8 activation must have the qparams of that range."""
    configs = []
    for (scale, zero_point), ops in FIXED_QPARAMS_OPS.items():
        for config in operators(ops, dtypes):
            for dtype in config.dtype_configs:
                for activation in (dtype.input_dtype_with_constraints, dtype.output_dtype_with_constraints):
                    if activation.dtype == torch.quint8:
                        activation.quant_min_lower_bound = 0
                        activation.quant_max_upper_bound = 255
                        activation.scale_exact_match = scale
                        activation.zero_point_exact_match = zero_point
            configs.append(config)
    return configs


def share_qparams_ops(dtypes: DTypes) -> Entries:
    """Return the entries of the operators whose output has the input's scale and zero point."""
    return operators(SHARE_QPARAMS_OPS, dtypes, SHARED_OBSERVER)


def tensor_info_ops(dtypes: DTypes) -> Entries:
    """Return the entries of the operators that return no tensor."""
    return operators(("shape", "size"), dtypes, NOT_OBSERVED)


def batch_norm(dtypes: DTypes) -> Entries:
    """Return the entries of batch norm without a preceding convolution, alone and followed by ReLU."""
    fused: dict[Module, Module] = {nn.BatchNorm2d: nni.BNReLU2d, nn.BatchNorm3d: nni.BNReLU3d}
    return [
        *(
            config
            for module in fused
            for config in (*pairs(module, RELUS, dtypes, fused[module]), entry(module, dtypes))
        ),
        *operators(fused.values(), dtypes),
    ]


def layer_norm(dtypes: DTypes) -> Entries:
    """Return the entries of layer norm as module and function."""
    return [entry(nn.LayerNorm, dtypes), functional(F.layer_norm, dtypes, weight=2, bias=3)]


def rnn(dtypes: DTypes) -> Entries:
    """Return the entries of the recurrent modules."""
    return [
        entry(getattr(nn, name), dtypes, root=getattr(nn, name), reference=getattr(nnqr, name))
        for name in ("GRUCell", "LSTMCell", "RNNCell", "LSTM", "GRU")
    ]


def embedding(dtypes: DTypes) -> Entries:
    """Return the entries of embedding as module and QAT module."""
    return with_qat(nn.Embedding, nnqat.Embedding, dtypes, root=nn.Embedding, reference=nnqr.Embedding)


def embedding_bag(dtypes: DTypes) -> Entries:
    """Return the entries of embedding bag as module and QAT module."""
    return with_qat(nn.EmbeddingBag, nnqat.EmbeddingBag, dtypes, root=nn.EmbeddingBag, reference=nnqr.EmbeddingBag)
