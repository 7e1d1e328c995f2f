"""Faults of convolutions and linear layers: packed weights, geometry, batches, and fused sums."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .fault import case
from .kernels import Call, Kernel, added, after, at, codes, kernel_faults, quantized

CONV = case("nn.Conv2d")
FOLDED = case("nn.Conv2d+nn.BatchNorm2d", "per_channel")
TYPICAL = case("nn.Conv2d", profile="typical")
ADDED = case("torch.add(nn.Conv2d,*)", backend="onednn")


def conv(variant: str) -> str:
    return case("nn.Conv2d", variant)


def transposed(variant: str) -> str:
    return case("nn.ConvTranspose2d", variant)


def with_codes(weight: Tensor, changed: Tensor, scales: Tensor | None = None) -> Tensor:
    """A quantized weight with changed codes and, per channel, changed scales."""
    if weight.qscheme() == torch.per_tensor_affine:
        return quantized(changed, weight)
    used = weight.q_per_channel_scales() if scales is None else scales
    zero_points, axis = weight.q_per_channel_zero_points(), weight.q_per_channel_axis()
    return torch._make_per_channel_quantized_tensor(changed.to(torch.int8).contiguous(), used, zero_points, axis)


@dataclass(frozen=True)
class Packed:
    """The arguments that a convolution is packed from. A convolution of one dimension has a leading one of size 1."""

    weight: Tensor
    bias: Tensor | None
    stride: list[int]
    padding: list[int]
    output_padding: list[int]
    dilation: list[int]
    groups: int
    is_transposed: bool

    @classmethod
    def of(cls, packed: Any) -> "Packed":
        weight, bias = packed.unpack()
        lists = [list(part) for part in (packed.stride(), packed.padding(), packed.output_padding(), packed.dilation())]
        return cls(weight, bias, *lists, packed.groups(), bool(packed.transpose()))  # type: ignore[call-arg, arg-type]

    def pack(self) -> Any:
        extra = [self.output_padding] if self.is_transposed else []
        prepack = f"conv{'_transpose' * self.is_transposed}{len(self.stride)}d_prepack"
        options = (self.stride, self.padding, *extra, self.dilation, self.groups)
        return getattr(torch.ops.quantized, prepack)(self.weight, self.bias, *options)


def repacked(change: Callable[[Packed], Packed]) -> Kernel:
    """A convolution with changed packed arguments."""
    return lambda call: call.original(packed_weight=change(Packed.of(call["packed_weight"])).pack())


def with_weight(change: Callable[[Tensor], Tensor]) -> Kernel:
    """A convolution with changed weight codes."""

    def changed(p: Packed) -> Packed:
        return replace(p, weight=with_codes(p.weight, change(p.weight.int_repr()).contiguous()))

    return repacked(changed)


def with_scales(change: Callable[[Tensor], Tensor]) -> Kernel:
    """A convolution with changed scales per channel."""

    def changed(p: Packed) -> Packed:
        scales = change(p.weight.q_per_channel_scales()).contiguous()
        return replace(p, weight=with_codes(p.weight, p.weight.int_repr(), scales))

    return repacked(changed)


def with_first_group_everywhere(weight: Tensor) -> Tensor:
    return torch.cat([weight[: len(weight) // 2]] * 2)


def padded(code: Callable[[Tensor], int], *sides: int) -> Kernel:
    """A convolution or pooling over an input that is padded beforehand, with a wrong code."""

    def kernel(call: Call) -> Tensor:
        x = call.x
        padded = quantized(F.pad(x.int_repr().int(), sides, value=code(x)), x)
        if "packed_weight" in call.arguments:
            packed = replace(Packed.of(call["packed_weight"]), padding=[0, 0]).pack()
            return call.original(qx=padded, packed_weight=packed)  # type: ignore[no-any-return]
        return call.original(self=padded, padding=[0, 0])  # type: ignore[no-any-return]

    return kernel


def zero_point_of(x: Tensor) -> int:
    return x.q_zero_point()


def with_argument(name: str, change: Callable[[Any], Any]) -> Kernel:
    return lambda call: call.original(**{name: change(call[name])})


def with_accumulated(change: Callable[[Tensor], Tensor]) -> Kernel:
    """oneDNN's convolution with a fused sum, with a changed addend. The addend is a copy, since the kernel works in place."""
    return lambda call: call.original(qaccum=change(call["qaccum"]))


def _first_scale(packed: Any) -> Any:
    weight, bias = packed.unpack()
    scales = weight.q_per_channel_scales()
    return torch.ops.quantized.linear_prepack(with_codes(weight, weight.int_repr(), scales[:1].expand_as(scales)), bias)


fault = kernel_faults("convolutions", CONV)

C, T, A = "quantized.conv2d", "quantized.conv_transpose2d", "quantized.conv2d_add"
FAULTS = [
    # weights
    fault("kernels are mirrored", "accuracy numerics", C, with_weight(lambda w: w.flip(2, 3))),
    fault(
        "rows and columns of kernels are exchanged", "accuracy numerics", C, with_weight(lambda w: w.transpose(2, 3))
    ),
    fault("input channels are in reverse order", "accuracy numerics", C, with_weight(lambda w: w.flip(1))),
    fault("output channels are in reverse order", "accuracy numerics", C, with_weight(lambda w: w.flip(0))),
    fault(
        "one weight is one code off",
        "numerics",
        C,
        with_weight(
            lambda w: w.index_put(
                (torch.tensor(2), torch.tensor(1), torch.tensor(0), torch.tensor(2)), w[2, 1, 0, 2] ^ 1
            )
        ),
    ),
    fault("weights have 7 bits", "numerics", C, with_weight(lambda w: w // 2 * 2)),
    fault("the lowest weight is one code up", "numerics", C, with_weight(lambda w: w.clamp(min=-126))),
    fault(
        "mirrored kernels in three dimensions",
        "accuracy numerics",
        "quantized.conv3d",
        with_weight(lambda w: w.flip(2)),
        case("nn.Conv3d"),
    ),
    fault(
        "mirrored kernels in one dimension",
        "accuracy numerics",
        "quantized.conv1d",
        with_weight(lambda w: w.flip(3)),
        case("nn.Conv1d"),
    ),
    fault(
        "mirrored kernels of transposed convolution",
        "accuracy lowered numerics",
        T,
        with_weight(lambda w: w.flip(2, 3)),
        transposed("default"),
    ),
    fault(
        "every group has the weights of the first",
        "accuracy numerics",
        C,
        with_weight(with_first_group_everywhere),
        conv("groups"),
    ),
    fault(
        "depthwise: every channel has the kernel of the first",
        "accuracy numerics",
        C,
        with_weight(lambda w: w[:1].expand_as(w)),
        conv("depthwise"),
    ),
    fault(
        "scales of channels are in reverse order",
        "accuracy numerics",
        C,
        with_scales(lambda s: s.flip(0)),
        conv("per_channel"),
        FOLDED,
        TYPICAL,
    ),
    fault(
        "scales of two channels are exchanged",
        "accuracy numerics",
        C,
        with_scales(lambda s: torch.cat([s[:6], s[6:].flip(0)])),
        conv("per_channel"),
    ),
    fault(
        "every channel has the scale of the first",
        "accuracy numerics",
        C,
        with_scales(lambda s: s[:1].expand_as(s)),
        FOLDED,
        TYPICAL,
    ),
    fault(
        "depthwise: every channel has the scale of the first",
        "accuracy numerics",
        C,
        with_scales(lambda s: s[:1].expand_as(s)),
        conv("depthwise_per_channel"),
    ),
    fault(
        "linear: every channel has the scale of the first",
        "accuracy numerics",
        "quantized.linear",
        lambda call: call.original(W_prepack=_first_scale(call["W_prepack"])),
        case("nn.Linear", "per_channel"),
        case("nn.Linear+nn.BatchNorm1d", "per_channel"),
    ),
    # geometry
    fault(
        "the stride is ignored", "accuracy numerics", C, repacked(lambda p: replace(p, stride=[1, 1])), conv("stride")
    ),
    fault(
        "strides begin at the second column",
        "accuracy numerics",
        C,
        after(lambda y: quantized(y.int_repr().roll(1, -1), y)),
        conv("stride"),
    ),
    fault(
        "strides of the two dimensions are exchanged",
        "accuracy numerics",
        C,
        repacked(lambda p: replace(p, stride=p.stride[::-1])),
        conv("asymmetric"),
    ),
    fault(
        "dilation is ignored",
        "accuracy numerics",
        C,
        repacked(lambda p: replace(p, dilation=[1, 1], padding=[1, 1])),
        conv("dilation"),
    ),
    fault("padding is code 0", "accuracy numerics", C, padded(lambda x: 0, 1, 1, 1, 1)),
    fault("padding is on one side only", "accuracy numerics", C, padded(zero_point_of, 2, 0, 2, 0)),
    fault("padding is ignored", "accuracy numerics", C, repacked(lambda p: replace(p, padding=[0, 0]))),
    fault(
        "the last column is not computed",
        "accuracy numerics",
        C,
        after(lambda y: quantized(torch.cat([y.int_repr()[..., :-1], y.int_repr()[..., -1:] * 0], -1), y)),
    ),
    fault(
        "output padding of transposed convolution is code 0",
        "accuracy numerics",
        T,
        codes(lambda c: torch.cat([c[..., :-1], c[..., -1:] * 0], -1)),
        transposed("stride"),
    ),
    fault(
        "dilation of transposed convolution is ignored",
        "accuracy lowered numerics",
        T,
        repacked(lambda p: replace(p, dilation=[1, 1], padding=[1, 1])),
        transposed("dilation"),
    ),
    fault(
        "the result is transposed",
        "accuracy numerics",
        "quantized.linear",
        after(lambda y: y.t().contiguous()),
        case("nn.Linear"),
    ),
    fault(
        "the result is reshaped to the transposed shape",
        "accuracy numerics",
        "quantized.linear",
        after(lambda y: quantized(y.int_repr().t().reshape(y.shape), y)),
        case("nn.Linear"),
    ),
    # batches
    fault(
        "every item of a batch equals the first",
        "accuracy numerics",
        C,
        after(lambda y: quantized(y.int_repr()[:1].expand(y.shape).contiguous(), y)),
    ),
    fault(
        "items of a batch are in reverse order",
        "accuracy numerics",
        C,
        after(lambda y: quantized(y.int_repr().flip(0), y)),
    ),
    fault(
        "in batches of more than two items the third is wrong",
        "numerics",
        C,
        added(1, lambda c: at(slice(2, 3))(c)),
        conv("batch5"),
    ),
    # sums
    fault(
        "nothing is added to the convolution",
        "accuracy numerics",
        A,
        with_accumulated(lambda q: quantized(q.int_repr() * 0 + q.q_zero_point(), q)),
        ADDED,
    ),
    fault(
        "the zero point of the addend is ignored",
        "accuracy numerics",
        A,
        with_accumulated(lambda q: quantized(q.int_repr(), q, zero_point=0)),
        ADDED,
    ),
    fault(
        "the scale of the addend is doubled",
        "accuracy numerics",
        A,
        with_accumulated(lambda q: quantized(q.int_repr(), q, scale=q.q_scale() * 2)),
        ADDED,
    ),
]
