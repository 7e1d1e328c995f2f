"""Faults of binary arithmetic, concatenation and activation functions."""

from collections.abc import Callable

import torch
from torch import Tensor

from .convolutions import with_argument
from .fault import case
from .kernels import Call, Kernel, added, after, codes, integers, kernel_faults, quantized

ADD, MUL = case("torch.add"), case("torch.mul")
OTHER_SCALE = case("torch.add", "other_scale")
CAT = case("torch.cat")


def with_operands(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Kernel:
    """A binary kernel with changed arguments."""

    def kernel(call: Call) -> Tensor:
        left, right = change(call["qa"], call["qb"])
        return call.original(qa=left, qb=right)  # type: ignore[no-any-return]

    return kernel


def scales_exchanged(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return quantized(a.int_repr(), a, scale=b.q_scale()), quantized(b.int_repr(), b, scale=a.q_scale())


def zero_points_exchanged(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    zero_points = a.q_zero_point(), b.q_zero_point()
    return quantized(a.int_repr(), a, zero_point=zero_points[1]), quantized(b.int_repr(), b, zero_point=zero_points[0])


def relu_first(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return tuple(quantized(q.int_repr().clamp(min=q.q_zero_point()), q) for q in (a, b))  # type: ignore[return-value]


def in_place(call: Call) -> Tensor:
    """A kernel that also overwrites its input with its result."""
    result: Tensor = call.original()
    call.x.copy_(result)
    return result


def relabelled(scale: float, zero_point: int) -> Kernel:
    return after(lambda q: quantized(q.int_repr(), q, scale, zero_point))


def _swish(call: Call) -> Tensor:
    values = integers(call.x) * call.x.q_scale()
    position = values * torch.sigmoid(values) / call["output_scale"] + call["output_zero_point"]
    return quantized(position.round().clamp(0, 255), call.x, call["output_scale"], call["output_zero_point"])


fault = kernel_faults("elementwise")

FAULTS = [
    # binary arithmetic
    fault(
        "addition: scales of the operands are exchanged",
        "accuracy numerics",
        "quantized.add",
        with_operands(scales_exchanged),
        OTHER_SCALE,
    ),
    fault(
        "addition: zero points of the operands are exchanged",
        "accuracy numerics",
        "quantized.add",
        with_operands(zero_points_exchanged),
        case("torch.add", "other_zero_point"),
    ),
    fault(
        "addition: the second zero point is ignored",
        "accuracy numerics",
        "quantized.add",
        with_operands(lambda a, b: (a, quantized(b.int_repr(), b, zero_point=0))),
        ADD,
    ),
    fault(
        "addition: the second operand is skipped",
        "accuracy numerics",
        "quantized.add",
        with_operands(lambda a, b: (a, quantized(b.int_repr() * 0 + b.q_zero_point(), b))),
        ADD,
    ),
    fault(
        "addition: the second operand has the first operand's scale",
        "accuracy numerics",
        "quantized.add",
        with_operands(lambda a, b: (a, quantized(b.int_repr(), b, scale=a.q_scale()))),
        OTHER_SCALE,
    ),
    fault(
        "addition: the broadcast operand repeats its first element",
        "accuracy numerics",
        "quantized.add",
        with_operands(lambda a, b: (a, quantized(b.int_repr()[:1].expand(b.shape).contiguous(), b))),
        case("torch.add", "broadcast"),
    ),
    fault(
        "addition: batches of one item are one up",
        "numerics",
        "quantized.add",
        codes(lambda c: c + int(len(c) == 1)),
        case("torch.add", "batch1"),
    ),
    fault(
        "addition: ReLU comes first",
        "accuracy numerics",
        "quantized.add_relu",
        with_operands(relu_first),
        case("torch.add+nn.ReLU"),
    ),
    fault(
        "addition becomes subtraction",
        "accuracy numerics",
        "quantized.add",
        with_operands(lambda a, b: (a, quantized(2 * b.q_zero_point() - b.int_repr().int(), b))),
        ADD,
    ),
    fault(
        "multiplication: the second operand's scale is doubled",
        "accuracy numerics",
        "quantized.mul",
        with_operands(lambda a, b: (a, quantized(b.int_repr(), b, scale=b.q_scale() * 2))),
        MUL,
    ),
    fault(
        "multiplication: a zero point is ignored",
        "accuracy numerics",
        "quantized.mul",
        with_operands(lambda a, b: (quantized(a.int_repr(), a, zero_point=0), b)),
        MUL,
    ),
    fault(
        "multiplication: signs are ignored",
        "accuracy numerics",
        "quantized.mul",
        with_operands(lambda a, b: (quantized(integers(a).abs() + a.q_zero_point(), a), b)),
        MUL,
    ),
    fault(
        "concatenation: operands in reverse order",
        "accuracy numerics",
        "aten.cat",
        with_argument("tensors", lambda t: [*t][::-1]),
        CAT,
    ),
    fault(
        "concatenation: the first operand alone",
        "accuracy numerics",
        "aten.cat",
        with_argument("tensors", lambda t: [*t][:1]),
        CAT,
    ),
    fault(
        "concatenation: the first operand twice",
        "accuracy numerics",
        "aten.cat",
        with_argument("tensors", lambda t: [t[0], t[0]]),
        CAT,
    ),
    fault(
        "concatenation along another dimension",
        "accuracy numerics",
        "aten.cat",
        with_argument("dim", lambda dim: 2),
        CAT,
    ),
    # activations
    fault(
        "sigmoid is one up in the middle",
        "numerics",
        "aten.sigmoid",
        added(1, lambda c: c == 128),
        case("nn.Sigmoid", "in_network"),
        case("nn.Sigmoid"),
    ),
    fault(
        "sigmoid is one down at its end",
        "numerics",
        "aten.sigmoid",
        added(-1, lambda c: c == c.max()),
        case("nn.Sigmoid", "in_network"),
    ),
    fault(
        "sigmoid's scale is 1/255", "constraints numerics", "aten.sigmoid", relabelled(1 / 255, 0), case("nn.Sigmoid")
    ),
    fault("tanh's zero point is 127", "constraints numerics", "aten.tanh", relabelled(2 / 256, 127), case("nn.Tanh")),
    fault("tanh is one up below zero", "numerics", "aten.tanh", added(1, lambda c: c < 128), case("nn.Tanh")),
    fault(
        "tanh is the identity",
        "accuracy numerics",
        "aten.tanh",
        lambda call: call.x.clone(),
        case("nn.Tanh"),
        case("nn.Tanh", "in_network"),
    ),
    fault(
        "hardsigmoid is sigmoid",
        "numerics",
        "aten.hardsigmoid",
        lambda call: call.by(torch.sigmoid),
        case("nn.Hardsigmoid"),
    ),
    fault(
        "hardswish is one off at one code",
        "numerics",
        "quantized.hardswish",
        added(1, lambda c: c == c.mode().values.mode().values.mode().values.mode().values),
        case("nn.Hardswish"),
    ),
    fault(
        "hardswish is x * sigmoid(x)",
        "numerics",
        "quantized.hardswish",
        lambda call: _swish(call),
        case("nn.Hardswish"),
    ),
    fault(
        "ELU's alpha is ignored",
        "accuracy numerics",
        "quantized.elu",
        with_argument("alpha", lambda alpha: 1),
        case("F.elu", "alpha_2.0"),
    ),
    fault(
        "leaky ReLU's slope is the default",
        "accuracy numerics",
        "quantized.leaky_relu",
        with_argument("negative_slope", lambda slope: 0.01),
        case("nn.LeakyReLU", "negative_slope_0.25"),
    ),
    fault(
        "ReLU6 is not clamped at 6",
        "numerics",
        "aten.hardtanh",
        with_argument("max_val", lambda bound: 1e9),
        case("nn.ReLU6"),
        case("nn.ReLU6", "huge"),
    ),
    fault(
        "hardtanh's bounds are the defaults",
        "accuracy numerics",
        "aten.hardtanh",
        lambda call: call.original(min_val=-1, max_val=1),
        case("nn.Hardtanh", "-2.0_3.0"),
    ),
    fault(
        "clamp ignores its maximum",
        "accuracy numerics",
        "aten.clamp",
        with_argument("max", lambda bound: None),
        case("torch.clamp"),
    ),
    fault(
        "clamp is one code short",
        "numerics",
        "aten.clamp",
        with_argument("min", lambda bound: bound + 2.0**-4),
        case("torch.clamp"),
    ),
    fault(
        "dropout drops",
        "accuracy numerics stable",
        "quantized.dropout",
        codes(lambda c: c * (torch.rand(c.shape) < 0.5)),
        case("F.dropout"),
    ),
    fault(
        "softmax is along another dimension",
        "accuracy numerics",
        "quantized.softmax",
        with_argument("dim", lambda dim: 2),
        case("nn.Softmax", backend="qnnpack"),
    ),
    fault(
        "ReLU writes to its input",
        "stable",
        "aten.relu",
        in_place,
        case("nn.ReLU", "reused"),
        case("nn.ReLU", "called_twice"),
        case("nn.ReLU"),
    ),
]
