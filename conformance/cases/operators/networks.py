"""Layers of deployed networks, on which latency is measured, as values of operators.

ResNet-50: He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016), table 1, on 224×224 images.
MobileNetV3-Large: Howard et al., "Searching for MobileNetV3" (ICCV 2019), table 1.
Transformer: BERT-base, Devlin et al., "BERT" (NAACL 2019): width 768, inner width 3072, 12 heads of 64, 128 tokens.
Speech: RNN-T, He et al., "Streaming End-to-end Speech Recognition for Mobile Devices" (ICASSP 2019): width 640, and half.
Recommender: DLRM, Naumov et al., "Deep Learning Recommendation Model" (2019): embeddings of width 64, pooled.
Video: R3D-18, Tran et al., "A Closer Look at Spatiotemporal Convolutions" (CVPR 2018), table 1.
"""

from collections.abc import Callable
from typing import Any

from .record import IMAGES, Layers
from .space import Values
from .variant import Shape

_CONVOLUTIONS: dict[str, tuple[str, int, tuple[int, int], Shape, int, dict[str, Any]]] = {
    "mobilenetv3_expand_14": ("small", 1, (80, 480), (14, 14), 1, {}),
    "mobilenetv3_depthwise_28": ("small", 1, (120, 120), (28, 28), 5, {"groups": "depthwise"}),
    "resnet50_3x3_14": ("medium", 1, (256, 256), (14, 14), 3, {}),
    "resnet50_3x3_56": ("medium", 1, (64, 64), (56, 56), 3, {}),
    "resnet50_stem_224": ("medium", 1, (3, 64), (224, 224), 7, {"stride": 2}),
    "resnet50_batch8_28": ("large", 8, (128, 128), (28, 28), 3, {}),
    "speech_subsampling_100": ("small", 1, (80, 256), (100,), 3, {"stride": 2}),
    "speech_subsampling_800": ("large", 1, (80, 512), (800,), 3, {"stride": 2}),
    "r3d18_7": ("small", 1, (64, 64), (4, 14, 14), 3, {}),
    "r3d18_28": ("large", 1, (64, 128), (8, 28, 28), 3, {}),
}
"""Extent, items, channels, image, kernel and options."""

_UPSAMPLED: dict[int, tuple[Shape, Shape]] = {1: ((50,), (400,)), 2: ((14, 14), (56, 56)), 3: ((4, 7, 7), (4, 14, 14))}
"""A smaller and a larger signal, image or volume, by rank."""

LINEAR: Layers = {
    "bert_projection_16": ("small", {"features": (768, 768), "leading": (16,)}),
    "bert_mlp_128": ("medium", {"features": (768, 3072), "leading": (128,)}),
    "resnet50_classifier": ("medium", {"features": (2048, 1000), "leading": (1,)}),
    "bert_mlp_1024": ("large", {"features": (768, 3072), "leading": (1024,)}),
}


def convolutions(rank: int, *, transposed: bool) -> Layers:
    """Convolutions that are padded to keep the size of the image at stride 1."""
    if transposed:
        sizes = zip(("small", "large"), _UPSAMPLED[rank], strict=True)
        return {
            f"decoder_{image[-1]}": (extent, {"channels": (64, 32), "spatial": image, "items": 1})
            for extent, image in sizes
        }
    return {
        name: (
            extent,
            {"channels": channels, "kernel_size": kernel, "spatial": image, "items": items, "padding": kernel // 2}
            | options,
        )
        for name, (extent, items, channels, image, kernel, options) in _CONVOLUTIONS.items()
        if len(image) == rank
    }


def images(values: Callable[[Shape], Values]) -> Layers:
    """The values of an operator on images, which has no layers of its own."""
    return {name: (extent, values(shape)) for name, (extent, shape) in IMAGES.items()}


def sequences(kind: str) -> Layers:
    """Normalization and attention of transformers: of `rows`, the `scores` of queries and keys, and `attention` to values."""
    layers = {}
    for name, extent, tokens in (("bert_16", "small", 16), ("bert_128", "medium", 128), ("bert_1024", "large", 1024)):
        form = {
            "rows": (1, tokens, 768),
            "scores": (12, tokens, tokens),
            "attention": ((12, tokens, 64), (12, 64, tokens)),
        }[kind]
        layers[name] = extent, {"form": form}
    return layers


def steps(**values: Any) -> Layers:
    """One step of recurrent layers: over more of them the errors of dynamic ranges add up until no answer is certain to be
    right."""
    widths = ("small", 320), ("large", 640)
    return {f"speech_{width}": (extent, {"sizes": (width, width), **values}) for extent, width in widths}


def embeddings(form: Callable[[int], Values]) -> Layers:
    """Embeddings of a number of lookups."""
    tables = ("small", 10_000, 64), ("large", 100_000, 4096)
    return {f"dlrm_{lookups}": (extent, {"table": (rows, 64), **form(lookups)}) for extent, rows, lookups in tables}
