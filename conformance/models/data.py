"""Deterministic data from a counter-based generator, with the same bits on every platform.

The data of the `exact` profile are dyadic: small integers times a power of two. So float32 sums are exact in any order,
inputs and weights lie on their quantization grids, and every correct engine produces the same integers, ties aside.
"""

import math
import zlib
from collections.abc import Sequence

import numpy
import torch
from torch import Tensor, nn


def integers(key: str, count: int, low: int, high: int) -> Tensor:
    """Return int64 of shape (`count`,) in [`low`, `high`]. They depend on the arguments alone.

    The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) with
    the position as its counter and the key's CRC-32 as its seed. uint64 arithmetic wraps in the same way on every platform,
    while torch's samplers differ between platforms.
    """
    first = (zlib.crc32(key.encode()) << 24) + 1
    z = numpy.arange(first, first + count, dtype=numpy.uint64)
    z *= 0x9E3779B97F4A7C15
    z ^= z >> numpy.uint64(30)
    z *= 0xBF58476D1CE4E5B9
    z ^= z >> numpy.uint64(27)
    z *= 0x94D049BB133111EB
    z ^= z >> numpy.uint64(31)
    # 32 bits divide much faster than 64
    values = (z & 0x7FFFFFFF).astype(numpy.uint32) % (high - low + 1)
    # a new tensor: numpy's empty arrays have strides of 0
    return torch.from_numpy(values.astype(numpy.int64)) + low


def integer(key: str, low: int, high: int) -> int:
    """Return the element of `integers(key, 1, low, high)`, without the time that it takes to make an array."""
    z = ((zlib.crc32(key.encode()) << 24) + 1) * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return ((z ^ z >> 31) & 0x7FFFFFFF) % (high - low + 1) + low


def grid(key: str, shape: tuple[int, ...], low: int, high: int, exponent: int) -> Tensor:
    """Return float32 of `shape`: integers in [`low`, `high`] times 2**`exponent`.

    The first element is the low end and the last is the high end, if there are two.
    """
    values = integers(key, math.prod(shape), low, high)
    if values.numel() > 1:
        values[0], values[-1] = low, high
    return (values * 2.0**exponent).float().reshape(shape)


def degenerate(data: str, key: str, shape: tuple[int, ...], low: int, high: int, exponent: int) -> Tensor:
    """Return float32 of `shape` with the data that a key of `DEGENERATE`, `VIEWS` or `BEYOND` names, in steps of
    2**`exponent`.

    Codes are those from `low` to `high`. Values below and above the range are so by its length; within a code they are at
    most a quarter of a step from it. The element that differs is the lowest code, and the others are nearer to zero: dynamic
    kernels quantize the ends of a symmetric range to ties.
    """
    if data == "expanded":
        return grid(key, (1, *shape[1:])[: len(shape)], low, high, exponent).expand(shape)
    if data == "permuted":
        axes = tuple(range(len(shape)))[::-1]
        return grid(key, shape[::-1], low, high, exponent).permute(axes)
    if data == "overlapping":  # each dimension goes on one element later
        return grid(key, (sum(shape) + 1 - len(shape),), low, high, exponent).as_strided(shape, (1,) * len(shape))
    values, length = torch.zeros(shape, dtype=torch.float64), high - low
    if data == "within_code":
        values = integer(key, low, high) + integers(key, math.prod(shape), -1, 1).reshape(shape) / 4
    elif data == "one_differs":
        values += integer(key, (low + high) // 2, high - 1)
        values.view(-1)[integer(f"{key}/place", 0, math.prod(shape) - 1)] = low
    else:
        values += {"zero": 0, "lowest": low, "highest": high, "below": low - length, "above": high + length}[data]
    return (values * 2.0**exponent).float()


def degenerate_indices(data: str, indices: Tensor, limit: int) -> Tensor:
    """Return what a key of `INDICES` names, of the shape of `indices`, which are below `limit`."""
    if data == "int32":
        return indices.to(torch.int32)
    return torch.full_like(indices, {"first": 0, "last": limit - 1}[data])


GREATEST_BIAS = 2.0
"""The greatest absolute value of a bias that `fill` sets."""


def fill(model: nn.Module, key: str, levels: int) -> None:
    """Set every parameter and buffer of `model` to dyadic values, with weights within ±`levels` steps of 2**-7.

    Variances make sqrt(var + eps) a power of two, so that a batch norm folds into dyadic weights. The factor
    gamma / sqrt(var + eps) is between 1/4 and 2 and varies between channels.
    """
    norms = {name: m for name, m in model.named_modules() if hasattr(m, "eps")}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    with torch.no_grad():
        for name, tensor in tensors:
            owner, _, leaf = name.rpartition(".")
            label, shape = f"{key}/{name}", tuple(tensor.shape)
            if leaf == "running_var":
                eps = norms[owner].eps
                tensor.copy_(4.0 ** integers(label, tensor.numel(), -1 if eps < 0.25 else 0, 1).double() - eps)
            elif leaf == "running_mean":
                tensor.copy_(grid(label, shape, -8, 8, -4))
            elif leaf.endswith("weight") and (owner in norms or tensor.dim() < 2):
                tensor.copy_(grid(label, shape, 1, 1, 0) * 2.0 ** integers(label, tensor.numel(), -1, 0).reshape(shape))
            elif leaf.startswith("bias"):
                # the results of a norm are multiples of small powers of two, and half of them would be ties without an offset
                tensor.copy_(grid(label, shape, -32, 32, -4) + (2.0**-9 if owner in norms else 0.0))
            elif tensor.is_floating_point() and tensor.dim() > 1:
                tensor.copy_(grid(label, shape, -levels, levels, -7))
                flat = tensor.flatten(1)
                if flat.shape[1] > 1:  # both ends in every row make per-channel scales powers of two
                    flat[:, 0], flat[:, -1] = -levels * 2.0**-7, levels * 2.0**-7


def normal(key: str, shape: tuple[int, ...], scale: float = 1.0) -> Tensor:
    """Return float32 of `shape`, approximately normal with mean 0 and standard deviation `scale`.

    Each is the sum of twelve uniform integers, whose variance is 1 in units of their range (Irwin-Hall distribution).
    """
    sums = integers(key, 12 * math.prod(shape), 0, 65535).reshape(-1, 12).sum(1) - 6 * 65535
    return (sums.double() / 65536 * scale).float().reshape(shape)


def fill_typical(model: nn.Module, key: str) -> None:
    """Set every parameter and buffer of `model` to values that are typical after training.

    Weights have a variance of 1 / fan-in, factors of norms are about 1, and biases and means are about 0.
    """
    norms = {name for name, m in model.named_modules() if hasattr(m, "eps")}
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            owner, _, leaf = name.rpartition(".")
            label, shape = f"{key}/{name}", tuple(tensor.shape)
            if leaf == "running_var":
                tensor.copy_(integers(label, tensor.numel(), 32, 96) / 64)
            elif leaf.endswith("weight") and (owner in norms or tensor.dim() < 2):
                tensor.copy_(1 + normal(label, shape, 0.1))
            elif leaf == "running_mean" or leaf.startswith("bias"):
                tensor.copy_(normal(label, shape, 0.1))
            elif tensor.is_floating_point() and tensor.dim() > 1:
                tensor.copy_(normal(label, shape, math.prod(shape[1:]) ** -0.5))


def bell(key: str, shape: tuple[int, ...], scale: float = 1.0) -> Tensor:
    """Return float32 of `shape`, bell-shaped with mean 0 and standard deviation `scale`, at a sixth of the cost of `normal`.

    Each is the sum of four uniform integers, at most 3.5 standard deviations.
    """
    pairs = integers(key, 2 * math.prod(shape), 0, 2**30 - 1).reshape(2, -1)
    sums = ((pairs & 0x7FFF) + (pairs >> 15)).sum(0) - 2 * 0x7FFF
    return (sums.double() * (scale * 3**0.5 / 2**15)).float().reshape(shape)


def uniform(key: str, shape: tuple[int, ...], bound: float) -> Tensor:
    """Return float32 of `shape`, uniform in ±`bound`."""
    return (integers(key, math.prod(shape), -(2**23), 2**23) * (bound / 2**23)).float().reshape(shape)


def own_tensors(model: nn.Module) -> list[tuple[nn.Module, str, str, Tensor]]:
    """The parameters and buffers of a model's modules with floating-point values: module, full name, last name and tensor."""
    return [
        (module, f"{path}.{leaf}", leaf, tensor)
        for path, module in model.named_modules()
        for leaf, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        if tensor.is_floating_point()
    ]


def fill_initialized(model: nn.Module, key: str) -> None:
    """Set every parameter and buffer of `model` as the documentation of torch's modules says that they begin.

    Weights and biases of convolutions and linear layers are uniform within 1 / sqrt(fan-in), those of recurrent layers within
    1 / sqrt(hidden size). Embeddings are normal, cut off at 3.5 standard deviations. Norms have factors and variances of 1,
    biases and means of 0. The slope of a PReLU is 1/4.
    """
    with torch.no_grad():
        for module, name, leaf, tensor in own_tensors(model):
            weight, label, shape = getattr(module, "weight", None), f"{key}/{name}", tuple(tensor.shape)
            fan_in = getattr(module, "hidden_size", 0)
            if isinstance(weight, Tensor) and weight.dim() > 1:
                fan_in = math.prod(weight.shape[1:])
            if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
                tensor.copy_(bell(label, shape))
            elif fan_in:
                tensor.copy_(uniform(label, shape, fan_in**-0.5))
            elif isinstance(module, nn.PReLU):
                tensor.fill_(0.25)
            else:
                tensor.fill_(1.0 if leaf in ("weight", "running_var") else 0.0)


def spreads(key: str, count: int) -> Tensor:
    """Return float64 of shape (`count`,): the standard deviation of the results of each channel of a trained layer.

    They lie within four octaves. Of eight or more channels one in sixteen is dead: 2**16 times smaller.
    """
    octaves = integers(f"{key}/spread", count, -12, 4) / 4
    dead = (integers(f"{key}/dead", count, 0, 15) == 0) & (count >= 8)
    return 2.0 ** torch.where(dead, octaves - 16, octaves)


AMPLIFYING = 1.5
"""The greatest slope of a trained PReLU, whose slopes are not negative: 1 is a multiple of its 255th part. Where it is not, a
known deviation hides any other."""


def fill_trained(model: nn.Module, key: str) -> None:
    """Set every parameter and buffer of `model` to values distributed as training leaves them.

    The rows of weights have the magnitudes of `spreads`, and heavy tails: each is a product of two bell-shaped numbers. The
    statistics of a batch norm are those of its layer's results, so that its variances range over decades, which folding
    undoes. Ranges of channels differ as much in Nagel et al., "Data-free quantization through weight equalization and bias
    correction", ICCV 2019, figure 2.
    """
    with torch.no_grad():
        for module, name, leaf, tensor in own_tensors(model):
            label, shape = f"{key}/{name}", tuple(tensor.shape)
            if tensor.dim() > 1:
                heavy = bell(f"{label}/left", shape) * bell(f"{label}/right", shape, math.prod(shape[1:]) ** -0.5)
                tensor.copy_(heavy * spreads(key, shape[0]).float().reshape(-1, *[1] * (tensor.dim() - 1)))
            elif leaf == "running_var":
                tensor.copy_((spreads(key, shape[0]) * 2.0 ** bell(label, shape, 0.5)) ** 2)
            elif leaf == "running_mean":
                tensor.copy_(bell(label, shape, 0.5) * spreads(key, shape[0]))
            elif leaf.endswith("weight"):
                tensor.copy_((0.25 if isinstance(module, nn.PReLU) else 1.0) + bell(label, shape, 0.3))
                if isinstance(module, nn.PReLU) and len(tensor) > 1:
                    tensor.abs_().clamp_(max=AMPLIFYING)[0] = AMPLIFYING
            else:
                tensor.copy_(bell(label, shape, 0.3 if hasattr(module, "eps") else 0.05))


def activations(
    key: str, shape: tuple[int, ...], low: int, high: int, step: float, *, tails: bool, clipped: bool
) -> Tensor:
    """Return float32 of `shape`, distributed as the input of a layer in a network: normal, or with heavy `tails`, channels of
    unequal ranges and outliers. With a `low` of 0 they are the result of a ReLU, half of them zero.

    Values are `step` times a position on the grid of the codes from `low` to `high`, which `clipped` values do not leave and
    whose ends two elements are. Positions are odd sixteenths: no rounding of float32 decides which code is the nearest.
    """
    values = bell(f"{key}/left", shape).double()
    if tails:
        values = values * bell(f"{key}/right", shape)
        if len(shape) > 1:
            octaves = integers(f"{key}/range", shape[1], -6, 0) / 2
            values = values * 2.0 ** octaves.reshape(-1, *[1] * (len(shape) - 2))
    # a range of four standard deviations on each side of zero
    positions = (2 * torch.floor(values * (high - low) * (2 if low == 0 else 1)) + 1) / 16
    if low == 0:
        positions = torch.where(values > 0, positions, 0.0)
    flat = positions.view(-1)
    if flat.numel() > 1:
        flat[0], flat[-1] = low, high
    if clipped:
        positions = positions.clamp(low, high)
    return (positions * step).float()


def ends_alone(data: Tensor) -> Tensor:
    """Return a copy in which all elements but the first and the last, the ends of the range, are zero."""
    ends = torch.zeros_like(data)
    for index in (0, -1):
        ends.view(-1)[index] = data.view(-1)[index]
    return ends


def reversed_data(x: Tensor) -> Tensor:
    """Return other data of the same shape and range. Indices and offsets of bags stay: offsets have to be ascending."""
    return x.flip(tuple(range(x.dim()))) if x.is_floating_point() else x


def beyond(data: Tensor) -> Tensor:
    """Return a copy whose elements are 1.5 and 2 times as large, in turns."""
    factors = torch.tensor([1.5, 2.0]).repeat(data.numel() // 2 + 1)[: data.numel()]
    return data * factors.reshape(data.shape)


FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""The channels-last memory format for each number of dimensions that has one."""


def laid_out(data: Tensor, layout: str) -> Tensor:
    """Return the same values in a memory layout: `contiguous`, `strided` or `channels_last` (see `Operand.layout`)."""
    if layout == "contiguous":
        return data
    if layout == "strided":
        return torch.stack([data, data], -1).flatten(-2)[..., ::2]
    return data.contiguous(memory_format=FORMATS[data.dim()])


def with_ends(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Set two elements of every batch item to the ends of the input's range, for float inputs of two or more dimensions.

    A dynamically quantized layer computes qparams from its whole input. With both ends in every item, it computes the same
    ones for any part of the batch. The inputs are changed and returned.
    """
    for x in inputs:
        if x.is_floating_point() and x.dim() > 1:
            low, high = x.min(), x.max()
            flat = x.view(len(x), -1)
            flat[:, 0], flat[:, -1] = low, high
    return inputs


def with_unequal_channels(model: nn.Module) -> None:
    """Divide the weights of output channels by 1, 2 and 4 in turn, so that per-channel scales differ."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(2.0 ** -(torch.arange(len(weight)) % 3).reshape(-1, *[1] * (weight.dim() - 1)))


def channels_last(inputs: Sequence[Tensor]) -> list[Tensor] | None:
    """Return the same values with channels-last strides, or None if no input has that many dimensions."""
    if not any(x.dim() in FORMATS for x in inputs):
        return None
    return [x.contiguous(memory_format=FORMATS[x.dim()]) if x.dim() in FORMATS else x for x in inputs]
