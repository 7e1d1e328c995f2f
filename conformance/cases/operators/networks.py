"""Shapes on which latency is measured: layers of deployed networks.

ResNet-50: He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016), table 1, on 224×224 images.
MobileNetV3-Large: Howard et al., "Searching for MobileNetV3" (ICCV 2019), table 1.
Transformer: BERT-base, Devlin et al., "BERT" (NAACL 2019): width 768, inner width 3072, 12 heads of 64, 128 tokens.
Speech: RNN-T, He et al., "Streaming End-to-end Speech Recognition for Mobile Devices" (ICASSP 2019): width 640, and half.
Recommender: DLRM, Naumov et al., "Deep Learning Recommendation Model" (2019): embeddings of width 64, pooled.
Video: R3D-18, Tran et al., "A Closer Look at Spatiotemporal Convolutions" (CVPR 2018), table 1.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .sizes import Size, each, pooling, resized
from .variant import Shape, Variant

EXTENTS = ("small", "medium", "large")


@dataclass(frozen=True)
class Layer:
    """A layer of a network as the size of an operator.

    `name` becomes the variant's name; `extent` is the cost relative to the other layers of the operator. Without an
    `operator` the layer holds for every operator that no other layer names.
    """

    name: str
    extent: str
    operator: str | None
    size: Size


def _convolution(
    name: str, extent: str, rank: int, batch: int, channels: Shape, image: Shape, kernel: int, **options: int
) -> Iterator[Layer]:
    """One convolution as module and as function, padded to keep the image's size at stride 1; `options` are the module's."""
    inputs, outputs = channels
    groups, stride = options.get("groups", 1), options.get("stride", 1)
    spatial = tuple(-(-length // stride) for length in image)
    taken, output = ((batch, inputs, *image),), (batch, outputs, *spatial)
    arguments: dict[int | str, object] = {0: inputs, 1: outputs, 2: kernel}
    arguments.update(options)
    arguments["padding"] = kernel // 2
    yield Layer(name, extent, f"nn.Conv{rank}d", Size(taken, arguments, output=output))
    parameters = {"weight": (outputs, inputs // groups, *(kernel,) * rank), "bias": (outputs,)}
    strides, paddings = (stride,) * rank, (kernel // 2,) * rank
    positional: dict[int | str, object] = {3: strides, 4: paddings, 6: groups}
    yield Layer(name, extent, f"F.conv{rank}d", Size(taken, positional, parameters, output))


def _upsampling(name: str, extent: str, rank: int, channels: Shape, image: Shape) -> Iterator[Layer]:
    """A transposed convolution that keeps the size of the image."""
    inputs, outputs = channels
    taken, output = ((1, inputs, *image),), (1, outputs, *image)
    yield Layer(name, extent, f"nn.ConvTranspose{rank}d", Size(taken, {0: inputs, 1: outputs}, output=output))
    parameters = {"weight": (inputs, outputs, *(3,) * rank), "bias": (outputs,)}
    yield Layer(name, extent, f"F.conv_transpose{rank}d", Size(taken, parameters=parameters, output=output))


def _linear(name: str, extent: str, rows: int, inputs: int, outputs: int) -> Iterator[Layer]:
    taken, output = ((rows, inputs),), (rows, outputs)
    yield Layer(name, extent, "nn.Linear", Size(taken, {0: inputs, 1: outputs}, output=output))
    parameters = {"weight": (outputs, inputs), "bias": (outputs,)}
    yield Layer(name, extent, "F.linear", Size(taken, parameters=parameters, output=output))


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
"""Extents and shapes of the inputs of operators without a layer of their own, by name."""


def _sequences() -> Iterator[tuple[str, str, dict[str, Size]]]:
    """Normalization and attention of transformers, one step of recurrent layers, and embeddings, by name and extent."""
    for name, extent, tokens in (("bert_16", "small", 16), ("bert_128", "medium", 128), ("bert_1024", "large", 1024)):
        taken, affine = ((1, tokens, 768),), {"weight": (768,), "bias": (768,)}
        yield (
            name,
            extent,
            {
                "nn.LayerNorm": Size(taken, {0: 768}),
                "F.layer_norm": Size(taken, {1: (768,)}, affine),
                "torch.matmul": Size(((12, tokens, 64), (12, 64, tokens))),
                "nn.Softmax": Size(((12, tokens, tokens),)),
            },
        )
    # one step at a time: over more of them the errors of dynamic ranges add up until no answer is certain to be right
    for name, extent, width in (("speech_320", "small", 320), ("speech_640", "large", 640)):
        features: dict[int | str, object] = {0: width, 1: width}
        layers = each("nn.GRU nn.LSTM", Size(((1, 1, width),), features))
        yield name, extent, layers | each("nn.GRUCell nn.LSTMCell nn.RNNCell", Size(((1, width),), features))
    for name, extent, rows, lookups in (("dlrm_64", "small", 10_000, 64), ("dlrm_4096", "large", 100_000, 4096)):
        table: dict[int | str, object] = {0: rows, 1: 64}
        bags = Size(((lookups,), (lookups // 4,)), table, limit=lookups)
        yield (
            name,
            extent,
            {
                "F.embedding": Size(((lookups,),), {}, {"weight": (rows, 64)}, limit=rows),
                **each("nn.Embedding nnqat.Embedding", Size(((lookups,),), table, limit=rows)),
                **each("nn.EmbeddingBag nnqat.EmbeddingBag", bags),
            },
        )


def _images(shape: Shape) -> dict[str, Size]:
    """Operators on images, or on signals and volumes of about as many elements."""
    affine = {"weight": (256,), "bias": (256,)}
    signal, volume = (*shape[:2], math.prod(shape[2:])), (*shape[:2], 4, shape[2] // 2, shape[3] // 2)
    elements = math.prod(shape[1:])
    sizes: dict[str, Size] = {}
    for rank, taken in ((1, signal), (2, shape), (3, volume)):
        sizes[f"nn.InstanceNorm{rank}d"] = Size((taken,), {0: 256})
        sizes |= {f"nn.BatchNorm{rank}d": Size((taken,), {0: 256})} if rank > 1 else {}
        sizes |= dict.fromkeys(pooling(rank), Size((taken,)))
    return {
        **sizes,
        **each("F.instance_norm F.group_norm", Size((shape,), {}, affine)),
        **each("torch.squeeze Tensor.squeeze Tensor.squeeze_", Size(((shape[0], 1, elements, 1),))),
        "torch.narrow": Size((shape,), {2: 64, 3: 128}),
        **each("Tensor.reshape Tensor.view", Size((shape,), {1: elements // 14, 2: 14})),
        "Tensor.resize_": Size((shape,), {0: shape[0], 1: 256, 2: elements // 256}),
        **each("Tensor.shape Tensor.size", Size((shape,), {1: elements})),
    }


def _unweighted() -> Iterator[Layer]:
    for name, extent, sizes in _sequences():
        yield from (Layer(name, extent, operator, size) for operator, size in sizes.items())
    for name, (extent, shape) in IMAGES.items():
        yield from (Layer(name, extent, operator, size) for operator, size in _images(shape).items())
        yield Layer(name, extent, None, Size((shape, shape)))


LAYERS = (*_weighted(), *_unweighted())


def layers(operator: str, default: Variant) -> list[tuple[str, Variant]]:
    """Extent and variant of every layer on which an operator is timed, by extent; `default` is its default variant."""
    matching = [layer for layer in LAYERS if layer.operator == operator]
    matching = matching or [layer for layer in LAYERS if layer.operator is None]
    matching.sort(key=lambda layer: EXTENTS.index(layer.extent))
    return [(layer.extent, resized(operator, default, layer.size).named(layer.name)) for layer in matching]
