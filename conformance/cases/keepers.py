"""Operators whose output keeps the qparams of their input, as they stand before another operator in networks."""

import math
from dataclasses import dataclass

from .operators import Shape


@dataclass(frozen=True)
class Keeper:
    """One or two operators that keep qparams.

    `taken` is the shape of their input. `steps` have, in order of execution, an operator's name, the expression that applies
    it to `x`, and source of the module that the expression calls as `self.{name}`, if any.
    """

    taken: Shape
    steps: tuple[tuple[str, str, str], ...]

    @property
    def operators(self) -> str:
        return ",".join(name for name, _, _ in self.steps)


def _module(name: str, arguments: str, taken: Shape) -> Keeper:
    return Keeper(taken, ((name, "self.{name}(x)", f"{name}({arguments})"),))


def _call(name: str, expression: str, taken: Shape) -> Keeper:
    return Keeper(taken, ((name, expression, ""),))


def keepers(shape: Shape) -> dict[str, tuple[Keeper, ...]]:
    """Spellings of operators that keep qparams and whose output has this shape, by group; none below two dimensions."""
    if len(shape) < 2:
        return {}
    groups = {**_pointwise(shape), **_views(shape), **_repeats(shape)}
    if len(shape) in (3, 4, 5):
        groups |= _pools(shape, len(shape) - 2)
    if len(shape) == 4:
        groups |= _images(shape)
    return groups


def _pointwise(shape: Shape) -> dict[str, tuple[Keeper, ...]]:
    return {
        "identity": (
            _module("nn.Identity", "", shape),
            _module("nn.Dropout", "0.5", shape),
            _call("F.dropout", "F.dropout(x, 0.5, False)", shape),
            _call("Tensor.contiguous", "x.contiguous()", shape),
            _call("Tensor.detach", "x.detach()", shape),
        ),
        "relu": (
            _module("nn.ReLU", "", shape),
            _call("F.relu", "F.relu(x)", shape),
            _call("Tensor.relu", "x.relu()", shape),
            _call("Tensor.relu_", "x.relu_()", shape),
            _module("nn.ReLU6", "", shape),
            _call("F.relu6", "F.relu6(x)", shape),
        ),
        "clamp": (
            _call("torch.clamp", "torch.clamp(x, -1.5, 2.0)", shape),
            _call("Tensor.clamp", "x.clamp(-1.5, 2.0)", shape),
            _module("nn.Hardtanh", "-1.5, 2.0", shape),
            _call("F.hardtanh", "F.hardtanh(x, -1.5, 2.0)", shape),
            _call("F.hardtanh_", "F.hardtanh_(x, -1.5, 2.0)", shape),
        ),
        "leaky_relu": (
            _module("nn.LeakyReLU", "0.25", shape),
            _call("F.leaky_relu", "F.leaky_relu(x, 0.25)", shape),
            _call("F.leaky_relu_", "F.leaky_relu_(x, 0.25)", shape),
            _module("nn.ELU", "", shape),
            _call("F.elu", "F.elu(x)", shape),
        ),
    }


def _views(shape: Shape) -> dict[str, tuple[Keeper, ...]]:
    rank, first, channels = len(shape), shape[0], shape[1]
    swapped, flat = (shape[1], shape[0], *shape[2:]), (first, math.prod(shape[1:]))
    return {
        "permute": (
            _call("Tensor.permute", f"x.permute{(1, 0, *range(2, rank))}", swapped),
            _call("torch.permute", f"torch.permute(x, {(1, 0, *range(2, rank))})", swapped),
            _call("torch.permute_copy", f"torch.permute_copy(x, {(1, 0, *range(2, rank))})", swapped),
            _call("torch.transpose", "torch.transpose(x, 0, 1)", swapped),
            _call("Tensor.transpose", "x.transpose(0, 1)", swapped),
        ),
        "reshape": (
            _call("Tensor.reshape", f"x.reshape{shape}", flat),
            _call("Tensor.view", f"x.view{shape}", flat),
        ),
        "squeeze": (
            Keeper(
                shape, (("torch.unsqueeze", "torch.unsqueeze(x, 1)", ""), ("torch.squeeze", "torch.squeeze(x, 1)", ""))
            ),
            Keeper(shape, (("Tensor.unsqueeze", "x.unsqueeze(1)", ""), ("Tensor.squeeze", "x.squeeze(1)", ""))),
            Keeper(shape, (("Tensor.unsqueeze_", "x.unsqueeze_(1)", ""), ("Tensor.squeeze_", "x.squeeze_(1)", ""))),
        ),
        "narrow": (_call("torch.narrow", f"torch.narrow(x, 1, 1, {channels})", (first, channels + 2, *shape[2:])),),
    }


def _repeats(shape: Shape) -> dict[str, tuple[Keeper, ...]]:
    """Repetitions of a batch of one, and means over a dimension that the shape lacks."""
    rank, first = len(shape), shape[0]
    return {
        "repeat": (
            _call("Tensor.repeat", f"x.repeat{(first, *[1] * (rank - 1))}", (1, *shape[1:])),
            _call("torch.repeat_interleave", f"torch.repeat_interleave(x, {first}, 0)", (1, *shape[1:])),
            _call("Tensor.repeat_interleave", f"x.repeat_interleave({first}, 0)", (1, *shape[1:])),
        ),
        "mean": (
            _call("torch.mean", "torch.mean(x, 1)", (first, 3, *shape[1:])),
            _call("Tensor.mean", "x.mean(1)", (first, 3, *shape[1:])),
        ),
    }


def _pools(shape: Shape, spatial: int) -> dict[str, tuple[Keeper, ...]]:
    """Pooling that keeps the size of images, signals or volumes."""
    larger, sizes = (*shape[:2], *(length + 3 for length in shape[2:])), shape[2:]
    return {
        "max_pool": (
            _module(f"nn.MaxPool{spatial}d", "3, 1, 1", shape),
            _call(f"F.max_pool{spatial}d", f"F.max_pool{spatial}d(x, 3, 1, 1)", shape),
        ),
        "avg_pool": (
            _module(f"nn.AvgPool{spatial}d", "3, 1, 1", shape),
            _call(f"F.avg_pool{spatial}d", f"F.avg_pool{spatial}d(x, 3, 1, 1)", shape),
        ),
        "adaptive_avg_pool": (
            _module(f"nn.AdaptiveAvgPool{spatial}d", f"{sizes}", larger),
            _call(f"F.adaptive_avg_pool{spatial}d", f"F.adaptive_avg_pool{spatial}d(x, {sizes})", larger),
        ),
    }


def _images(shape: Shape) -> dict[str, tuple[Keeper, ...]]:
    """Operators that change the size of images."""
    batch, channels, height, width = shape
    smaller = (batch, channels, -(-height // 2), -(-width // 2))
    groups: dict[str, tuple[Keeper, ...]] = {
        "interpolate": (_call("F.interpolate", f"F.interpolate(x, {(height, width)})", smaller),)
    }
    if not height % 2 and not width % 2:
        taken = (batch, 4 * channels, height // 2, width // 2)
        groups["pixel_shuffle"] = (
            _module("nn.PixelShuffle", "2", taken),
            _call("F.pixel_shuffle", "F.pixel_shuffle(x, 2)", taken),
        )
    elif not channels % 4:
        taken = (batch, channels // 4, 2 * height, 2 * width)
        groups["pixel_shuffle"] = (
            _module("nn.PixelUnshuffle", "2", taken),
            _call("F.pixel_unshuffle", "F.pixel_unshuffle(x, 2)", taken),
        )
    return groups
