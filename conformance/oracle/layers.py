"""Layers with weights: what weight they have after batch norm is folded in, and how they are applied to an input."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
FUNCTIONS: frozenset[Callable[..., Any]] = frozenset(
    {*CONVOLUTIONS.values(), *TRANSPOSED.values(), F.linear, F.embedding}
)
"""Functions whose second argument, `weight`, is quantized as a weight."""

LAYERS = (_ConvNd, nn.Linear, nn.Embedding, nn.EmbeddingBag, nn.RNNBase, nn.RNNCellBase)


@dataclass(frozen=True)
class Parts:
    """A module as the layer with weights, the batch norm that follows it and what comes after; each may be missing.

    `add` joins a second input to the layer's output, as `ConvAdd2d` does.
    """

    layer: nn.Module | None
    norm: nn.Module | None
    rest: tuple[nn.Module, ...]
    add: Callable[..., Tensor] | None = None


def parts(module: nn.Module) -> Parts:
    """Take a fused module or a module for QAT apart; a plain layer is its only part."""
    if isinstance(module, LAYERS):
        relu = (nn.ReLU(),) if type(module).__name__.rstrip("123d").endswith("ReLU") else ()
        return Parts(module, getattr(module, "bn", None), relu)
    if isinstance(module, nn.Sequential):
        first, *rest = module.children()
        if not isinstance(first, LAYERS):
            return Parts(None, None, (first, *rest))
        folds = bool(rest) and isinstance(rest[0], _BatchNorm)
        return Parts(first, rest[0] if folds else None, tuple(rest[folds:]), getattr(module, "add", None))
    return Parts(None, None, (module,))


def folded(layer: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """Weight and bias (float32) of a convolution or linear layer with the batch norm after it folded in.

    w * gamma / sqrt(var + eps) and (b - mean) * gamma / sqrt(var + eps) + beta (Jacob et al., "Quantization and training of
    neural networks for efficient integer-arithmetic-only inference", CVPR 2018, section 3.2), in float32, the dtype of the
    parameters: there var + eps is the power of four that the `exact` profile means.
    """
    factor = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    bias = torch.zeros_like(norm.running_mean) if layer.bias is None else layer.bias
    weight = layer.weight
    if isinstance(layer, _ConvTransposeNd):
        # (in, out / groups, …): the outputs of a group stand beside its own inputs
        by_group = factor.reshape(layer.groups, 1, -1).expand(-1, weight.shape[0] // layer.groups, -1)
        weight = weight * by_group.reshape(*weight.shape[:2], *[1] * (weight.dim() - 2))
    else:
        weight = weight * factor.reshape(-1, *[1] * (weight.dim() - 1))
    return weight, (bias - norm.running_mean) * factor + norm.bias


def apply(layer: Any, weight: Tensor, bias: Tensor | None, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Apply a layer that is not recurrent to `x` with another weight and bias (float64) than its own."""
    if isinstance(layer, _ConvTransposeNd):
        transposed: Any = TRANSPOSED[weight.dim() - 2]
        options = (layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation)
        return transposed(x, weight, bias, *options)
    if isinstance(layer, _ConvNd):
        padding: Any = layer.padding
        if layer.padding_mode != "zeros":
            x = F.pad(x, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
            padding = 0
        convolution: Any = CONVOLUTIONS[weight.dim() - 2]
        return convolution(x, weight, bias, layer.stride, padding, layer.dilation, layer.groups)
    if isinstance(layer, nn.Linear):
        return F.linear(x, weight, bias)
    if isinstance(layer, nn.Embedding):
        return F.embedding(x, weight, layer.padding_idx)
    assert isinstance(layer, nn.EmbeddingBag)
    return _bag(layer, weight, x, *args, **kwargs)


def _bag(
    layer: nn.EmbeddingBag,
    weight: Tensor,
    x: Tensor,
    offsets: Tensor | None = None,
    per_sample_weights: Tensor | None = None,
) -> Tensor:
    """Bags of rows, summed, averaged or the greatest of each column; an empty bag is zero (documentation of
    `torch.nn.EmbeddingBag`). Not torch's own: for float64 it does not end the last bag at the last offset."""
    if offsets is None:
        bags = [(int(start), int(start) + x.shape[1]) for start in range(0, x.numel(), x.shape[1])]
        x = x.flatten()
    else:
        ends = [*offsets.tolist()[1:], x.numel()]
        bags = list(zip(offsets.tolist(), ends, strict=True))[: len(ends) - layer.include_last_offset]
    factors = torch.ones(x.numel(), dtype=weight.dtype) if per_sample_weights is None else per_sample_weights.flatten()
    reduced = []
    for start, end in bags:
        kept = [i for i in range(start, end) if int(x[i]) != layer.padding_idx]
        rows = weight[x[kept]] * factors[kept].reshape(-1, 1)
        if not kept:
            reduced.append(weight.new_zeros(weight.shape[1]))
        elif layer.mode == "max":
            reduced.append(rows.amax(0))
        else:
            reduced.append(rows.sum(0) / (len(kept) if layer.mode == "mean" else 1))
    return torch.stack(reduced) if reduced else weight.new_zeros(0, weight.shape[1])
