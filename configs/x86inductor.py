"""What torchao's `X86InductorQuantizer` declares: the recipes of its annotators, each in every way of writing it.

The quantizer has no list of patterns. Its sets `quantizable_ops`, `default_quantizable_ops` and
`propagation_quantizable_ops` name operators; which sequences of them are quantized together is in the bodies of its
annotators alone, and is written down here. Operators that pass integers on are annotated behind another quantized operator.
"""

import operator
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.backend_config import ObservationType
from torch.ao.quantization.utils import MatchAllNode

from . import dtypes
from .families import RELUS
from .quantizer import INDUCTOR_WAYS, QAT, Declaration, QuantizerConfig, QuantizerSpec, declared

MODULE = "torchao.quantization.pt2e.quantizer.x86_inductor_quantizer"
X86 = QuantizerSpec(
    "X86InductorQuantizer()",
    dict.fromkeys(
        (
            "X86InductorQuantizer",
            "get_default_x86_inductor_quantization_config",
            "get_x86_inductor_linear_dynamic_fp16_config",
        ),
        MODULE,
    ),
    "get_default_x86_inductor_quantization_config(is_qat={qat}, is_dynamic={dynamic})",
    "pt2e-x86",
    half="get_x86_inductor_linear_dynamic_fp16_config()",
    ways=INDUCTOR_WAYS,
)

CONV, LINEAR = (nn.Conv2d, F.conv2d), (nn.Linear, F.linear)
AFTER_CONV = (*RELUS, nn.Hardtanh, F.hardtanh, nn.Hardswish, nn.ReLU6, nn.SiLU)
AFTER_LINEAR = (*RELUS, nn.LeakyReLU, nn.Tanh, nn.GELU)
POOLS = {
    "max_pool2d": (nn.MaxPool2d, F.max_pool2d),
    "avg_pool2d": (nn.AvgPool2d, F.avg_pool2d),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d),
}
FLATTEN = (nn.Flatten, torch.flatten)

WEIGHTED = (dtypes.STATIC_QUINT8_WEIGHTED_TO_FLOAT, dtypes.DYNAMIC_QUINT8_BOUNDED)
STATIC = (dtypes.STATIC_QUINT8_TO_FLOAT,)
NORMED = (dtypes.STATIC_QUINT8_WEIGHTED_BOUNDED,)
SHARING = NORMED  # the weights are those of the layers around the operator


_declared = partial(declared, per_channel=True)


def sums_of(layer: Any) -> tuple[Any, Any]:
    """The sum of a layer's result and another tensor, in either order, in torch's nested format."""
    return (operator.add, layer, MatchAllNode), (operator.add, MatchAllNode, layer)


def _convolutions() -> Iterator[Declaration]:
    yield from _declared("conv2d", CONV, WEIGHTED)
    yield from _declared("conv2d_unary", [(conv, after) for conv in CONV for after in AFTER_CONV], WEIGHTED)
    yield from _declared("conv1d_unary", [(conv, relu) for conv in (nn.Conv1d, F.conv1d) for relu in RELUS], WEIGHTED)
    sums = [one for conv in CONV for one in sums_of(conv)]
    yield from _declared("conv2d_binary", sums, WEIGHTED, quantizes_all=True)
    both = [(nn.ReLU, one) for one in sums]
    yield from _declared("conv2d_binary_unary", both, WEIGHTED, quantizes_all=True)


def _trained() -> Iterator[Declaration]:
    """Recipes with a norm, which training alone has: the result of each is quantized."""
    bn = (nn.BatchNorm2d, nn.Conv2d)
    yield from _declared("qat_conv2d_bn", [(nn.Conv2d, nn.BatchNorm2d)], NORMED, QAT)
    unary = [(nn.Conv2d, nn.BatchNorm2d, after) for after in AFTER_CONV]
    yield from _declared("qat_conv2d_bn_unary", unary, NORMED, QAT)
    yield from _declared("qat_conv2d_bn_binary", sums_of(bn), NORMED, QAT)
    both = [(nn.ReLU, one) for one in sums_of(bn)]
    yield from _declared("qat_conv2d_bn_binary_unary", both, NORMED, QAT)


def _products() -> Iterator[Declaration]:
    yield from _declared("linear", LINEAR, (*WEIGHTED, dtypes.DYNAMIC_FLOAT16))
    unary = [(linear, after) for linear in LINEAR for after in AFTER_LINEAR]
    yield from _declared("linear_unary", unary, (*WEIGHTED, dtypes.DYNAMIC_FLOAT16))
    sums = [one for linear in LINEAR for one in sums_of(linear)]
    # the quantizer leaves the other summand in float
    yield from _declared("linear_binary", sums, WEIGHTED, floats=("other",))
    both = [(nn.ReLU, one) for one in sums]
    yield from _declared("linear_binary_unary", both, WEIGHTED, floats=("other",))
    yield from _declared("matmul", (torch.matmul,), STATIC)
    yield from _declared("mul", (operator.mul, torch.mul), STATIC)


def _passed_on() -> Iterator[Declaration]:
    """Operators that take and return integers behind a quantized operator, with the qparams of their input."""
    shared = partial(_declared, observation=ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT, behind=True)
    for name, patterns in POOLS.items():
        yield from shared(name, patterns, SHARING)
    yield from shared("cat", (torch.cat,), SHARING)
    yield from shared("flatten", FLATTEN, SHARING, before="nn.Linear(140, 140)")


def get_x86inductor_declarations() -> QuantizerConfig:
    """Return what the quantizer declares."""
    config = QuantizerConfig("x86inductor", X86)
    config.set_backend_pattern_configs([*_convolutions(), *_trained(), *_products(), *_passed_on()])
    return config
