"""Shapes that latency is measured on: layers of networks that are deployed, by what they cost.

ResNet-50: He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016), table 1, on 224×224 images.
MobileNetV3-Large: Howard et al., "Searching for MobileNetV3" (ICCV 2019), table 1.
Transformer: BERT-base, Devlin et al., "BERT" (NAACL 2019): width 768, inner width 3072, 12 heads of 64, 128 tokens.
Speech: RNN-T, He et al., "Streaming End-to-end Speech Recognition for Mobile Devices" (ICASSP 2019): width 640, and half.
Recommender: DLRM, Naumov et al., "Deep Learning Recommendation Model" (2019): embeddings of width 64, pooled.
Video: R3D-18, Tran et al., "A Closer Look at Spatiotemporal Convolutions" (CVPR 2018), table 1.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .sizes import Size, resized
from .variant import Shape, Variant

EXTENTS = ("small", "medium", "large")


@dataclass(frozen=True)
class Layer:
    """A layer of a network: `name` is that of the variant, `extent` what it costs beside others of its operator."""

    name: str
    extent: str
    size: Size


def _convolution(
    name: str, extent: str, rank: int, batch: int, channels: Shape, image: Shape, kernel: int, **options: int
) -> Iterator[Layer]:
    """One convolution as module and as function. `options` are the module's; padding keeps the size, but for strides."""
    inputs, outputs = channels
    groups, stride = options.get("groups", 1), options.get("stride", 1)
    spatial = tuple(-(-length // stride) for length in image)
    given, made = (batch, inputs, *image), (batch, outputs, *spatial)
    text = "".join(f", {key}={value}" for key, value in {**options, "padding": kernel // 2}.items())
    modules = {
        "(4, 8, 3, padding=1": f"({inputs}, {outputs}, {kernel}{text}",
        f"Norm{rank}d(8)": f"Norm{rank}d({outputs})",
    }
    yield Layer(name, extent, Size(rf".*\.Conv(?!Transpose).*{rank}d", (given, made), modules, output=made))
    parameters = {"weight": (outputs, inputs // groups, *(kernel,) * rank), "bias": (outputs,)}
    ones, strides, padding = ((length,) * rank for length in (1, stride, kernel // 2))
    functions = {f"{ones}, {ones}, {ones}, 1": f"{strides}, {padding}, {ones}, {groups}"}
    yield Layer(name, extent, Size(rf"F\.conv{rank}d", (given,), functions, parameters, made))


def _upsampling(name: str, extent: str, rank: int, channels: Shape, image: Shape) -> Iterator[Layer]:
    """A transposed convolution that keeps the size of the image."""
    inputs, outputs = channels
    given, made = (1, inputs, *image), (1, outputs, *image)
    modules = {"(4, 8, 3": f"({inputs}, {outputs}, 3", f"Norm{rank}d(8)": f"Norm{rank}d({outputs})"}
    yield Layer(name, extent, Size(rf".*\.ConvTranspose.*{rank}d", (given, made), modules, output=made))
    parameters = {"weight": (inputs, outputs, *(3,) * rank), "bias": (outputs,)}
    yield Layer(name, extent, Size(rf"F\.conv_transpose{rank}d", (given,), parameters=parameters, output=made))


def _linear(name: str, extent: str, rows: int, inputs: int, outputs: int) -> Iterator[Layer]:
    given, made = ((rows, inputs),), (rows, outputs)
    modules = {"(16, 8": f"({inputs}, {outputs}", "Norm1d(8)": f"Norm1d({outputs})"}
    yield Layer(name, extent, Size(r".*\.Linear.*", given, modules, output=made))
    parameters = {"weight": (outputs, inputs), "bias": (outputs,)}
    yield Layer(name, extent, Size(r"F\.linear", given, parameters=parameters, output=made))


def _weighted() -> Iterator[Layer]:
    yield from _convolution("mobilenetv3_expand_14", "small", 2, 1, (80, 480), (14, 14), 1)
    yield from _convolution("mobilenetv3_depthwise_28", "small", 2, 1, (120, 120), (28, 28), 5, groups=120)
    yield from _convolution("resnet50_3x3_14", "medium", 2, 1, (256, 256), (14, 14), 3)
    yield from _convolution("resnet50_3x3_56", "medium", 2, 1, (64, 64), (56, 56), 3)
    yield from _convolution("resnet50_stem_224", "medium", 2, 1, (3, 64), (224, 224), 7, stride=2)
    yield from _convolution("resnet50_batch8_28", "large", 2, 8, (128, 128), (28, 28), 3)
    yield from _convolution("speech_subsampling_100", "small", 1, 1, (80, 256), (100,), 3, stride=2)
    yield from _convolution("speech_subsampling_800", "large", 1, 1, (80, 512), (800,), 3, stride=2)
    yield from _convolution("r3d18_7", "small", 3, 1, (64, 64), (4, 14, 14), 3)
    yield from _convolution("r3d18_28", "large", 3, 1, (64, 128), (8, 28, 28), 3)
    for rank, image, larger in ((1, (50,), (400,)), (2, (14, 14), (56, 56)), (3, (4, 7, 7), (4, 14, 14))):
        yield from _upsampling(f"decoder_{image[-1]}", "small", rank, (64, 32), image)
        yield from _upsampling(f"decoder_{larger[-1]}", "large", rank, (64, 32), larger)
    yield from _linear("bert_projection_16", "small", 16, 768, 768)
    yield from _linear("bert_mlp_128", "medium", 128, 768, 3072)
    yield from _linear("resnet50_classifier", "medium", 1, 2048, 1000)
    yield from _linear("bert_mlp_1024", "large", 1024, 768, 3072)


IMAGES: Mapping[str, tuple[str, Shape]] = {
    "resnet50_256_14": ("small", (1, 256, 14, 14)),
    "resnet50_256_56": ("medium", (1, 256, 56, 56)),
    "resnet50_batch8_56": ("large", (8, 256, 56, 56)),
}
"""What layers without weights take, by name."""


def _unweighted() -> Iterator[Layer]:
    for name, extent, tokens in (("bert_16", "small", 16), ("bert_128", "medium", 128), ("bert_1024", "large", 1024)):
        given, last, weights = (
            ((1, tokens, 768),),
            {"(16)": "(768)", "(16,)": "(768,)"},
            {"weight": (768,), "bias": (768,)},
        )
        yield Layer(name, extent, Size(r"nn\.LayerNorm", given, last))
        yield Layer(name, extent, Size(r"F\.layer_norm", given, last, weights))
        yield Layer(name, extent, Size(r"torch\.matmul", ((12, tokens, 64), (12, 64, tokens))))
        yield Layer(name, extent, Size(r"nn\.Softmax", ((12, tokens, tokens),)))
    # one step at a time: over more of them the errors of dynamic ranges add up until no answer is certain to be right
    for name, extent, width in (("speech_320", "small", 320), ("speech_640", "large", 640)):
        wider = {"(8, 6": f"({width}, {width}"}
        yield Layer(name, extent, Size(r"nn\.(GRU|LSTM)", ((1, 1, width),), wider))
        yield Layer(name, extent, Size(r"nn\.(GRU|LSTM|RNN)Cell", ((1, width),), wider))
    for name, extent, rows, lookups in (("dlrm_64", "small", 10_000, 64), ("dlrm_4096", "large", 100_000, 4096)):
        table = {"(10, 12": f"({rows}, 64"}
        yield Layer(name, extent, Size(r"F\.embedding", ((lookups,),), {}, {"weight": (rows, 64)}, limit=rows))
        yield Layer(name, extent, Size(r".*\.Embedding", ((lookups,),), table, limit=rows))
        yield Layer(name, extent, Size(r".*\.EmbeddingBag", ((lookups,), (lookups // 4,)), table, limit=lookups))
    for name, (extent, shape) in IMAGES.items():
        wider, weights = {"(4)": "(256)"}, {"weight": (256,), "bias": (256,)}
        signal, volume = (*shape[:2], math.prod(shape[2:])), (*shape[:2], 4, shape[2] // 2, shape[3] // 2)
        for rank, taken in ((1, signal), (2, shape), (3, volume)):
            yield Layer(name, extent, Size(rf"nn\.InstanceNorm{rank}d", (taken,), wider))
            yield Layer(name, extent, Size(rf"(nn\.BatchNorm|nni\.BNReLU){rank}d", (taken,), wider))
            yield Layer(name, extent, Size(rf".*[Pp]ool{rank}d", (taken,)))
        yield Layer(name, extent, Size(r"F\.(instance|group)_norm", (shape,), {}, weights))
        elements = math.prod(shape[1:])
        yield Layer(name, extent, Size(r".*\.squeeze_?", ((shape[0], 1, elements, 1),)))
        yield Layer(name, extent, Size(r"torch\.narrow", (shape,), {"1, 1, 2": "1, 64, 128"}))
        yield Layer(name, extent, Size(r"Tensor\.(reshape|view)", (shape,), {"20, 7": f"{elements // 14}, 14"}))
        yield Layer(
            name, extent, Size(r"Tensor\.resize_", (shape,), {"2, 4, 35": f"{shape[0]}, 256, {elements // 256}"})
        )
        yield Layer(name, extent, Size(r"Tensor\.(shape|size)", (shape,), {"140": f"{elements}"}))
        yield Layer(name, extent, Size(r".*", (shape, shape)))


LAYERS = (*_weighted(), *_unweighted())
"""Of the layers of one name that an operator matches, the first holds."""


def layers(operator: str, default: Variant) -> Iterator[tuple[str, Variant]]:
    """Every extent and variant of an operator that is measured, made from its default one, the least first."""
    made: dict[str, tuple[str, Variant]] = {}
    rest = [layer for layer in LAYERS if layer.size.operators == ".*"]
    named = [layer for layer in LAYERS if layer.size.operators != ".*" and re.fullmatch(layer.size.operators, operator)]
    for layer in named or rest:
        made.setdefault(layer.name, (layer.extent, resized(default, layer.size).named(layer.name)))
    yield from sorted(made.values(), key=lambda one: EXTENTS.index(one[0]))
