"""Variants for sweeps over all codes: every code of one tensor, every pair of codes of two, every product of one weight."""

from collections.abc import Iterator

from .sizes import Size, resized
from .variant import Operand, Shape, Variant, operands

CODES = 256
"""The number of codes of an 8-bit tensor."""

TAIL = 31
"""Elements after all codes: fewer than any engine's vector has bytes, except NEON's 16, and odd."""

EVERY_CODE: Shape = (1, 2 * CODES + TAIL)
EVERY_CODE_OF_IMAGE: Shape = (1, 1, 3, (2 * CODES + TAIL) // 3)
EVERY_PAIR: Shape = (1, CODES * CODES + TAIL)
CHANNELS = 35
"""Output channels of a layer with one weight for each: a tile of any engine and a remainder."""

SIGNALS: dict[int, Shape] = {1: (CODES + TAIL,), 2: (7, 41), 3: (7, 41, 1)}
"""Shapes of `CODES + TAIL` elements by the number of spatial dimensions."""

UNARY = frozenset(
    {
        *("nn.ReLU", "F.relu", "torch.relu", "Tensor.relu", "Tensor.relu_", "nn.ReLU6", "F.relu6"),
        *("nn.Hardtanh", "F.hardtanh", "F.hardtanh_", "torch.clamp", "Tensor.clamp", "nn.Identity"),
        *("nn.ELU", "F.elu", "nn.LeakyReLU", "F.leaky_relu", "F.leaky_relu_", "Tensor.leaky_relu"),
        *("nn.Hardswish", "F.hardswish", "nn.Dropout", "F.dropout", "nn.PReLU"),
        *("Tensor.contiguous", "Tensor.detach", "Tensor.detach_"),
    }
)
"""Operators of one tensor of any shape, whose output is a function of the code."""

FIXED = frozenset(
    {
        *("nn.Hardsigmoid", "F.hardsigmoid", "Tensor.hardsigmoid", "Tensor.hardsigmoid_"),
        *("nn.Sigmoid", "torch.sigmoid", "Tensor.sigmoid", "Tensor.sigmoid_"),
        *("nn.Tanh", "torch.tanh", "Tensor.tanh", "Tensor.tanh_"),
    }
)
"""Operators of one tensor whose output has fixed qparams. As the first operator their input would have them too."""

MOVING = frozenset(
    {
        *("torch.flatten", "nn.Flatten", "torch.narrow", "torch.transpose", "torch.permute", "torch.squeeze"),
        *("torch.unsqueeze", "torch.repeat_interleave", "torch.cat", "torch.stack"),
        *("Tensor.permute", "Tensor.repeat", "Tensor.repeat_interleave", "Tensor.reshape", "Tensor.resize_"),
        *("Tensor.squeeze", "Tensor.squeeze_", "Tensor.transpose", "Tensor.unsqueeze", "Tensor.unsqueeze_"),
        *("Tensor.view", "nn.PixelShuffle", "nn.PixelUnshuffle", "F.pixel_shuffle", "F.pixel_unshuffle"),
    }
)
"""Operators that copy or move codes, which require certain shapes."""

BINARY = frozenset(f"{module}.{name}" for module in ("operator", "torch") for name in ("add", "sub", "mul"))


NORMS = {f"nn.BatchNorm{rank}d": SIGNALS[rank] for rank in (2, 3)}
"""Operators with a factor and an addend for each channel, and the shape of a channel."""


def _layers(inputs: int) -> Iterator[tuple[str, Size]]:
    """Names and sizes of layers with so many input channels, and one weight for each pair of input and output channel."""
    for rank, spatial in SIGNALS.items():
        one, output = (1,) * rank, (1, CHANNELS, *spatial)
        bias = {"bias": (CHANNELS,)}
        module: dict[int | str, object] = {0: inputs, 1: CHANNELS, 2: 1, "padding": 0}
        yield f"nn.Conv{rank}d", Size(((1, inputs, *spatial),), module, output=output)
        padding: dict[int | str, object] = {4: (0,) * rank}
        weight = {"weight": (CHANNELS, inputs, *one)}
        yield f"F.conv{rank}d", Size(((1, inputs, *spatial),), padding, weight | bias, output)
        yield f"nn.ConvTranspose{rank}d", Size(((1, inputs, *spatial),), module, output=output)
        weight = {"weight": (inputs, CHANNELS, *one)}
        yield f"F.conv_transpose{rank}d", Size(((1, inputs, *spatial),), padding, weight | bias, output)
    rows = CODES + TAIL
    yield "nn.Linear", Size(((rows, inputs),), {0: inputs, 1: CHANNELS}, output=(rows, CHANNELS))
    parameters = {"weight": (CHANNELS, inputs), "bias": (CHANNELS,)}
    yield "F.linear", Size(((rows, inputs),), parameters=parameters, output=(rows, CHANNELS))


ONE_WEIGHT: dict[str, Size] = dict(_layers(1))
"""Sizes of layers that have one weight for each output channel."""

TWO_WEIGHTS: dict[str, Size] = dict(_layers(2))
"""Sizes of layers of images that have to be in channels-last format, which those of one channel do not show."""


def swept(
    operator: str, variants: list[Variant], *, images: bool = False, channels_last: bool = False
) -> Iterator[Variant]:
    """Yield the variants of an operator for sweeps; none for an operator whose output depends on several codes.

    `images` gives an operator of one tensor of any shape an image; `channels_last` says that images are in this format.
    """
    default = variants[0]
    if operator in UNARY:
        shape = EVERY_CODE_OF_IMAGE if images else EVERY_CODE
        yield default.named("every_code", operands=operands(shape), output=shape)
    elif operator in FIXED:
        # the function follows an operator with qparams of its own, as in a network
        before = "self.prelude = nn.Identity()"
        yield default.named("every_code", operands=operands(EVERY_CODE), data="full", prelude=before)
    elif operator in MOVING:
        yield default.named("every_code")
    elif operator in BINARY:
        yield default.named("every_pair", operands=operands(EVERY_PAIR, EVERY_PAIR), output=EVERY_PAIR)
        for variant in variants:
            if variant.name in ("same_tensor", "scalar"):
                code = operands(x=Operand(EVERY_CODE))
                yield variant.named(f"every_code_{variant.name}", operands=code, output=EVERY_CODE)
    elif operator in NORMS:
        size = Size(((1, CHANNELS, *NORMS[operator]),), {0: CHANNELS})
        yield resized(operator, default, size).named("every_code")
    elif operator in ONE_WEIGHT:
        two = channels_last and not operator.lower().endswith("linear")
        size = (TWO_WEIGHTS if two else ONE_WEIGHT)[operator]
        yield resized(operator, default, size).named("two_weights" if two else "one_weight")
