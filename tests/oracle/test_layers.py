"""Layers with weights inside fused modules."""

import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
from torch import nn
from torch.ao.quantization import get_default_qat_qconfig

from conformance.oracle.layers import FUNCTIONS, decompose


class Fused(nn.Sequential):
    """A fused module of a third party."""


def test_a_fused_module_may_hold_another_one() -> None:
    layer, norm, activation = nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Hardswish()
    parts = decompose(Fused(nni.ConvBn2d(layer.eval(), norm.eval()), activation))  # type: ignore[no-untyped-call]
    assert (parts.layer, parts.norm, parts.rest) == (layer, norm, (activation,))


def test_a_qat_module_with_a_norm_may_be_in_a_fused_module() -> None:
    qconfig = get_default_qat_qconfig("x86")  # type: ignore[no-untyped-call]
    layer, activation = nniqat.ConvBn2d(2, 3, 1, qconfig=qconfig), nn.Hardswish()  # type: ignore[no-untyped-call]
    parts = decompose(Fused(layer, activation))
    assert (parts.layer, parts.norm, parts.rest) == (layer, layer.bn, (activation,))


def test_the_weight_of_addmm_is_its_third_argument() -> None:
    assert FUNCTIONS[torch.addmm] == {"mat1": 1, "mat2": 2}
