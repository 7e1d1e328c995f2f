"""What torchao's `ArmInductorQuantizer` declares: the recipes of its annotators, each in every way of writing it.

It inherits the annotators of `X86InductorQuantizer` and calls some of them, which `annotate` names. Activations are signed
and affine. Weights have one scale in the default configuration, and annotators take those with a scale for each channel too.
"""

from collections.abc import Iterator

import torch
from torch import nn

from . import dtypes
from .quantizer import INDUCTOR_WAYS, QAT, Declaration, QuantizerConfig, QuantizerSpec, declared
from .x86inductor import AFTER_LINEAR, CONV, LINEAR, sums_of

MODULE = "torchao.quantization.pt2e.quantizer.arm_inductor_quantizer"
ARM = QuantizerSpec(
    "ArmInductorQuantizer()",
    dict.fromkeys(("ArmInductorQuantizer", "get_default_arm_inductor_quantization_config"), MODULE),
    "get_default_arm_inductor_quantization_config(is_qat={qat}, is_dynamic={dynamic})",
    "pt2e-arm",
    ways=INDUCTOR_WAYS,
)

WEIGHTED = (dtypes.STATIC_QINT8_WEIGHTED_TO_FLOAT, dtypes.DYNAMIC_QINT8_BOUNDED)
STATIC = (dtypes.STATIC_QINT8_TO_FLOAT,)
NORMED = (dtypes.STATIC_QINT8_WEIGHTED_BOUNDED,)


def _recipes() -> Iterator[Declaration]:
    yield from declared("conv2d", CONV, WEIGHTED)
    yield from declared("conv2d_binary", [one for conv in CONV for one in sums_of(conv)], WEIGHTED, quantizes_all=True)
    yield from declared("qat_conv2d_bn", [(nn.Conv2d, nn.BatchNorm2d)], NORMED, QAT)
    yield from declared("qat_conv2d_bn_binary", sums_of((nn.BatchNorm2d, nn.Conv2d)), NORMED, QAT)
    yield from declared("linear", LINEAR, WEIGHTED)
    yield from declared("linear_unary", [(linear, after) for linear in LINEAR for after in AFTER_LINEAR], WEIGHTED)
    yield from declared("matmul", (torch.matmul,), STATIC)


def get_arminductor_declarations() -> QuantizerConfig:
    """Return what the quantizer declares."""
    config = QuantizerConfig("arminductor", ARM)
    config.set_backend_pattern_configs([*_recipes()])
    return config
