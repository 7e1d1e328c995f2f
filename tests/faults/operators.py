"""Faults of norms, pooling, resizing and views, and faults that depend on the memory format."""

from typing import Any

import torch
from torch import Tensor

from .convolutions import padded, with_argument, zero_point_of
from .fault import case
from .kernels import Call, added, after, at, integers, kernel_faults, quantized

AVERAGE, GREATEST = case("nn.AvgPool2d"), case("nn.MaxPool2d")
NORM, LAYER_NORM = case("nn.BatchNorm2d"), case("nn.LayerNorm", backend="onednn")


def average(options: str) -> str:
    return case("nn.AvgPool2d", options)


def truncated_average(call: Call) -> Tensor:
    """Means of 2 by 2 codes, rounded down."""
    cells = call.x.int_repr().int().unfold(2, 2, 2).unfold(3, 2, 2)
    return quantized(cells.sum((-1, -2)) // 4, call.x)


def _of_the_batch(call: Call) -> Tensor:
    x = call["input"]
    whole = quantized(torch.cat([*x.int_repr()], 1).unsqueeze(0), x)
    result = call.original(input=whole)
    return quantized(torch.cat(result.int_repr().split(x.shape[2], 2)), result)


def _last_rows_least(x: Tensor) -> Tensor:
    codes = x.int_repr()
    codes[:, :, 1::2] = 0
    return quantized(codes, x)


def _unsigned_maxima(call: Call) -> Tensor:
    x = quantized(call.x.int_repr().view(torch.uint8), torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8))
    return quantized(call.original(self=x).int_repr().view(torch.int8), call.x)


def _apart(call: Call) -> Tensor:
    size = call.x.shape[-2] // 3 * 3, call.x.shape[-1] // 3 * 3
    return call.original(self=call.x[..., : size[0], : size[1]].contiguous())  # type: ignore[no-any-return]


def _shuffled(x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    codes = x.int_repr().reshape(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2)
    return quantized(codes.reshape(n, c // 4, 2 * h, 2 * w).contiguous(), x)


def _by_format(call: Call, *, usual: bool = False) -> Any:
    return added(1, at(0))(call) if call.x.is_contiguous() is usual else call.original()


def _as_it_lies(call: Call) -> Any:
    x = call.x
    if x.is_contiguous():
        return call.original()
    return call.original(self=quantized(x.int_repr().permute(0, 2, 3, 1).reshape(x.shape), x))


fault = kernel_faults("operators")

SPATIAL = [
    # norms
    fault(
        "batch norm forgets its mean",
        "accuracy numerics",
        "quantized.batch_norm2d",
        with_argument("mean", torch.zeros_like),
        NORM,
    ),
    fault(
        "batch norm's eps is the default",
        "accuracy numerics",
        "quantized.batch_norm2d",
        with_argument("eps", lambda eps: 1e-5),
        case("nn.BatchNorm2d", "eps"),
    ),
    fault(
        "batch norm's factors are one channel off",
        "accuracy numerics",
        "quantized.batch_norm2d",
        with_argument("weight", lambda weight: weight.roll(1)),
        NORM,
    ),
    fault(
        "batch norm divides by the variance",
        "accuracy numerics",
        "quantized.batch_norm2d",
        with_argument("var", lambda var: var**2),
        NORM,
    ),
    fault(
        "instance norm is not affine",
        "accuracy numerics",
        "quantized.instance_norm",
        lambda call: call.original(weight=None, bias=None),
        case("nn.InstanceNorm2d", "affine"),
    ),
    fault(
        "instance norm normalizes over the whole batch",
        "accuracy numerics",
        "quantized.instance_norm",
        lambda call: _of_the_batch(call),
        case("nn.InstanceNorm2d"),
    ),
    fault(
        "layer norm's eps is the default",
        "numerics",
        "quantized.layer_norm",
        with_argument("eps", lambda eps: 1e-5),
        case("nn.LayerNorm", "eps", backend="onednn"),
    ),
    fault(
        "layer norm has no bias",
        "accuracy numerics",
        "quantized.layer_norm",
        with_argument("bias", lambda bias: None),
        LAYER_NORM,
    ),
    # pooling
    fault("averages are rounded down", "numerics", "aten.avg_pool2d", truncated_average, AVERAGE),
    fault(
        "averages include padding",
        "accuracy numerics",
        "aten.avg_pool2d",
        with_argument("count_include_pad", lambda include: True),
        average("3_padding_1_count_include_pad_False"),
    ),
    fault(
        "averages exclude padding",
        "accuracy numerics",
        "aten.avg_pool2d",
        with_argument("count_include_pad", lambda include: False),
        average("3_stride_2_padding_1"),
    ),
    fault(
        "averages are padded with code 0",
        "accuracy numerics",
        "aten.avg_pool2d",
        padded(lambda x: 0, 1, 1, 1, 1),
        average("3_stride_2_padding_1"),
    ),
    fault(
        "the divisor is ignored",
        "accuracy numerics",
        "aten.avg_pool2d",
        with_argument("divisor_override", lambda divisor: None),
        average("2_divisor_override_3"),
    ),
    fault(
        "ceil_mode is ignored",
        "accuracy numerics",
        "aten.quantized_max_pool2d",
        with_argument("ceil_mode", lambda ceil: False),
        case("nn.MaxPool2d", "3_stride_2_ceil_mode_True"),
    ),
    fault(
        "maxima are padded with zero",
        "accuracy numerics",
        "aten.quantized_max_pool2d",
        padded(zero_point_of, 1, 1, 1, 1),
        case("nn.MaxPool2d", "padded_negative"),
    ),
    fault(
        "maxima skip the last row of the window",
        "accuracy numerics",
        "aten.quantized_max_pool2d",
        lambda call: call.original(self=_last_rows_least(call.x)),
        GREATEST,
    ),
    fault(
        "maxima ignore dilation",
        "accuracy numerics",
        "aten.quantized_max_pool2d",
        with_argument("dilation", lambda dilation: [1, 1]),
        case("nn.MaxPool2d", "2_stride_1_dilation_2"),
    ),
    fault(
        "maxima are compared without signs",
        "accuracy lowered numerics",
        "aten.quantized_max_pool2d",
        lambda call: _unsigned_maxima(call),
        case("nn.MaxPool2d", dtypes="static-qint8", backend="qnnpack"),
    ),
    fault(
        "adaptive windows do not overlap",
        "accuracy numerics",
        "aten._adaptive_avg_pool2d",
        lambda call: _apart(call),
        case("nn.AdaptiveAvgPool2d", "3"),
    ),
    fault(
        "the mean divides by one too many",
        "numerics",
        "aten.mean",
        after(lambda q: quantized((integers(q) * 35 / 36).round() + q.q_zero_point(), q)),
        case("torch.mean"),
        case("torch.mean", "positive"),
    ),
    # resizing and views
    fault(
        "nearest neighbours are those on the right",
        "accuracy numerics",
        "aten.upsample_nearest2d",
        after(lambda q: quantized(q.int_repr().roll(-1, -1), q)),
        case("F.interpolate", "size_5_9"),
    ),
    fault(
        "corners are aligned",
        "accuracy numerics",
        "aten.upsample_bilinear2d",
        with_argument("align_corners", lambda align: True),
        case("F.interpolate", "size_5_9_mode_bilinear"),
    ),
    fault(
        "bilinear weights are halves",
        "accuracy numerics",
        "aten.upsample_bilinear2d",
        lambda call: call.by(lambda x, size, *_: torch.ops.aten._adaptive_avg_pool2d(x, size)),
        case("F.interpolate", "size_5_9_mode_bilinear"),
    ),
    fault(
        "transposed strides are forgotten",
        "accuracy numerics",
        "aten.transpose",
        after(lambda q: quantized(q.contiguous().int_repr().flatten().flip(0).reshape(q.shape), q)),
        case("Tensor.transpose"),
    ),
    fault(
        "permuted dimensions are in reverse order",
        "accuracy numerics",
        "aten.permute",
        with_argument("dims", lambda dims: [0, 3, 1, 2]),
        case("Tensor.permute"),
    ),
    fault(
        "narrowing starts one later",
        "accuracy numerics",
        "aten.slice",
        lambda call: call.original(start=call["start"] + 1, end=call["end"] + 1),
        case("torch.narrow"),
    ),
    fault(
        "repeating interleaves",
        "accuracy numerics",
        "aten.repeat",
        lambda call: call.x.repeat_interleave(2, 1),
        case("Tensor.repeat"),
    ),
    fault(
        "pixels are shuffled the other way",
        "accuracy numerics",
        "aten.pixel_shuffle",
        lambda call: _shuffled(call.x),
        case("nn.PixelShuffle"),
    ),
]

MEMORY = [
    fault("channels_last is wrong", "stable", "aten.quantized_max_pool2d", lambda call: _by_format(call), GREATEST),
    fault(
        "channels_last is read in memory order", "stable", "aten.avg_pool2d", lambda call: _as_it_lies(call), AVERAGE
    ),
    fault(
        "contiguous memory is wrong",
        "numerics stable",
        "quantized.conv2d",
        lambda call: _by_format(call, usual=True),
        case("nn.Conv2d"),
    ),
]

FAULTS = [*SPATIAL, *MEMORY]
