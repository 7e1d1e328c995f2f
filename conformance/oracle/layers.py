"""Layers with weights: decomposition of fused modules, batch-norm folding, and application with replaced parameters."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
FUNCTIONS: dict[Any, Mapping[str, int]] = {
    **{
        function: {"input": 0, "weight": 1}
        for function in (*CONVOLUTIONS.values(), *TRANSPOSED.values(), F.linear, F.embedding)
    },
    torch.addmm: {"mat1": 1, "mat2": 2},
}
"""Functions with weights: the names and places of their input and of their weight, which is quantized as such."""

LAYERS = (_ConvNd, nn.Linear, nn.Embedding, nn.EmbeddingBag, nn.RNNBase, nn.RNNCellBase)


@dataclass(frozen=True)
class Parts:
    """A module as a layer with weights, its batch norm and the modules after them; each may be missing.

    `add` combines the layer's output with a second input, as in `ConvAdd2d`.
    """

    layer: nn.Module | None
    norm: nn.Module | None
    rest: tuple[nn.Module, ...]
    add: Callable[..., Tensor] | None = None


def _flat(module: nn.Sequential) -> Iterator[nn.Module]:
    """The modules of a fused module, which may hold another one."""
    for part in module.children():
        if isinstance(part, nn.Sequential) and not isinstance(part, LAYERS):  # QAT modules are both
            yield from _flat(part)
        else:
            yield part


def decompose(module: nn.Module) -> Parts:
    """Decompose a fused module or a QAT module. A plain layer is its own only part."""
    if isinstance(module, LAYERS):
        relu = (nn.ReLU(),) if type(module).__name__.rstrip("123d").endswith("ReLU") else ()
        return Parts(module, getattr(module, "bn", None), relu)
    if isinstance(module, nn.Sequential):
        first, *rest = _flat(module)
        if not isinstance(first, LAYERS):
            return Parts(None, None, (first, *rest))
        folds = bool(rest) and isinstance(rest[0], _BatchNorm)
        norm = rest[0] if folds else getattr(first, "bn", None)
        return Parts(first, norm, tuple(rest[folds:]), getattr(module, "add", None))
    return Parts(None, None, (module,))


def foldable(layer: nn.Module, norm: Any, rank: int) -> bool:
    """Whether a batch norm behind a layer scales each of the layer's outputs by one number that its input does not change: it
    has statistics, and normalizes dimension 1, while the outputs of a linear layer are in the last one."""
    return norm.running_mean is not None and (not isinstance(layer, nn.Linear) or rank <= 2)


def _scaling(norm: Any, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """The factor of each channel of a batch norm, gamma / sqrt(var + eps), and what is added after it to zero mean: beta.
    Without parameters these are 1 / sqrt(var + eps) and 0."""
    weight, bias = norm.weight, norm.bias
    factor = torch.rsqrt(var + norm.eps)
    return factor if weight is None else weight * factor, torch.zeros_like(mean) if bias is None else bias


def normalized(x: Tensor, norm: Any) -> Tensor:
    """Return a batch norm's result in float64: dimension 1 scaled by gamma / sqrt(var + eps), computed in float32 as `folded`
    does, and shifted. Without running statistics, mean and variance are those of `x`, the latter without Bessel's
    correction."""
    mean, var = norm.running_mean, norm.running_var
    if mean is None:
        others = [dim for dim in range(x.dim()) if dim != 1]
        mean, var = x.mean(others), x.var(others, correction=0)
    factor, bias = _scaling(norm, mean, var)
    shape = (-1, *[1] * (x.dim() - 2))
    scaled = (x - mean.double().reshape(shape)) * factor.double().reshape(shape)
    shifted: Tensor = scaled + bias.double().reshape(shape)
    return shifted


def folded(layer: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """Return the weight and bias (float32) of a convolution or linear layer with the batch norm `norm` folded in.

    w * gamma / sqrt(var + eps) and (b - mean) * gamma / sqrt(var + eps) + beta (Jacob et al., "Quantization and training of
    neural networks for efficient integer-arithmetic-only inference", CVPR 2018, section 3.2). The computation is in float32,
    the dtype of the parameters, because only there var + eps is exactly the `exact` profile's power of four.
    """
    factor, shift = _scaling(norm, norm.running_mean, norm.running_var)
    bias = torch.zeros_like(norm.running_mean) if layer.bias is None else layer.bias
    weight = layer.weight
    if isinstance(layer, _ConvTransposeNd):
        # the weight is (in, out / groups, …), so the rows of one group hold the outputs of that group only
        by_group = factor.reshape(layer.groups, 1, -1).expand(-1, weight.shape[0] // layer.groups, -1)
        weight = weight * by_group.reshape(*weight.shape[:2], *[1] * (weight.dim() - 2))
    else:
        weight = weight * factor.reshape(-1, *[1] * (weight.dim() - 1))
    return weight, (bias - norm.running_mean) * factor + shift


def apply(layer: Any, weight: Tensor, bias: Tensor | None, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Apply a layer that is not recurrent to `x`, with `weight` and `bias` (float64) in the place of its own."""
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
    """Return the sum, mean or columnwise maximum of each bag of rows; an empty bag gives zeros (documentation of
    `torch.nn.EmbeddingBag`).

    torch's float64 kernel is not used, because it ignores the last offset of `include_last_offset`.
    """
    if offsets is None:
        bounds = torch.arange(0, x.numel() + 1, x.shape[1])
        x = x.flatten()
    else:
        bounds = offsets if layer.include_last_offset else torch.cat([offsets, torch.tensor([x.numel()])])
    kept = torch.ones_like(x, dtype=torch.bool) if layer.padding_idx is None else x != layer.padding_idx
    rows = weight[x[kept]]
    if per_sample_weights is not None:
        rows *= per_sample_weights.flatten()[kept].reshape(-1, 1)
    bounds = torch.cat([torch.tensor([0]), kept.cumsum(0)])[bounds]
    lengths = bounds.diff()
    reduced = weight.new_zeros(len(lengths), weight.shape[1])
    for length in set(lengths.tolist()) - {0}:
        bags = rows[bounds[:-1][lengths == length].unsqueeze(1) + torch.arange(length)]
        whole = bags.amax(1) if layer.mode == "max" else bags.sum(1)
        reduced[lengths == length] = whole / length if layer.mode == "mean" else whole
    return reduced
