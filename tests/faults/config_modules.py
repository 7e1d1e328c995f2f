"""Faults of the modules, functions and patterns that a config names."""

import operator
from typing import Any

import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
import torch.ao.nn.quantized.reference as nnqr
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig
from torch.ao.quantization.fuser_method_mappings import fuse_conv_bn, fuse_linear_bn

from conformance.configs import families
from conformance.configs.onednn import ConvAdd

from .configs import DENSE, FUSED, LINEAR, NORMED, Change, changed, entry_of, fault, static

SUM = "nn.ReLU(torch.add(nn.Conv2d,*))"


def getters(name: str) -> Change:
    def change(config: BackendConfig) -> BackendConfig:
        entry = entry_of(config, name)
        entry._root_node_getter, entry._extra_inputs_getter = entry._extra_inputs_getter, entry._root_node_getter
        return config

    return change


def complex_format(name: str, pattern: Any) -> Change:
    def change(config: BackendConfig) -> BackendConfig:
        entry = entry_of(config, name)
        entry.pattern = None
        entry._pattern_complex_format = pattern
        return config

    return change


def forgets_the_batch_norm(is_qat: bool, conv: nn.Module, norm: nn.Module, relu: nn.Module) -> nn.Module:
    return families.in_sequence(nni.ConvReLU2d)(is_qat, conv, relu)


def forgets_the_relu(is_qat: bool, linear: nn.Module, relu: nn.Module) -> nn.Module:
    return families.in_sequence(nni.LinearReLU)(is_qat, linear, nn.Identity())


def takes_leaky_relu(is_qat: bool, linear: nn.Module, leaky: nn.Module) -> nn.Module:
    return families.in_sequence(nni.LinearLeakyReLU)(is_qat, linear, nn.LeakyReLU())


def takes_arguments_in_reverse(is_qat: bool, relu: nn.Module, linear: nn.Module) -> nn.Module:
    return families.in_sequence(nni.LinearReLU)(is_qat, linear, relu)


def folds_without_bias(is_qat: bool, linear: nn.Linear, norm: nn.BatchNorm1d) -> nn.Module:
    fused: nn.Module = fuse_linear_bn(is_qat, linear, norm)  # type: ignore[no-untyped-call]
    if isinstance(fused, nn.Linear):
        nn.init.zeros_(fused.bias)
    return fused


def folds_the_negative(is_qat: bool, conv: nn.Module, norm: nn.Module) -> nn.Module:
    with torch.no_grad():
        norm.weight.neg_()  # type: ignore[operator, union-attr]
    return fuse_conv_bn(is_qat, conv, norm)  # type: ignore[no-any-return, no-untyped-call]


QAT = static(LINEAR, flow="qat")
CONV_ADD = static(SUM)
FAULTS = [
    fault("the entry has another root module", "parity", "fbgemm", changed(LINEAR, root_module=nn.Conv2d), DENSE),
    fault("the root module is missing", "parity", "fbgemm", changed(LINEAR, root_module=None), DENSE),
    fault(
        "a QAT module has another root module",
        "parity",
        "fbgemm",
        changed("nnqat.Linear", root_module=nn.Conv2d),
        static("nnqat.Linear", flow="qat"),
        QAT,
    ),
    fault(
        "the entry has another reference module",
        "parity",
        "fbgemm",
        changed(LINEAR, reference_quantized_module=nnqr.Conv2d),
        DENSE,
    ),
    fault(
        "the reference module is missing", "parity", "fbgemm", changed(LINEAR, reference_quantized_module=None), DENSE
    ),
    fault(
        "a recurrent layer has another reference module",
        "lowered parity reference",
        "fbgemm",
        changed("nn.LSTM", reference_quantized_module=nnqr.GRU),
        "nn.LSTM/dynamic-float16/ptq/default/exact",
    ),
    fault(
        "the entry has another QAT module", "observed parity", "fbgemm", changed(LINEAR, qat_module=nnqat.Conv2d), QAT
    ),
    fault(
        "the QAT module is the variant with ReLU",
        "observed parity",
        "fbgemm",
        changed("nni.ConvBn2d", qat_module=nniqat.ConvBnReLU2d),
        static("nn.Conv2d+nn.BatchNorm2d", flow="qat"),
    ),
    fault(
        "the QAT module is missing",
        "parity",
        "fbgemm",
        changed("nni.LinearReLU", qat_module=None),
        static("nn.Linear+nn.ReLU", flow="qat"),
        FUSED,
    ),
    fault(
        "the entry has another fused module",
        "observed parity",
        "fbgemm",
        changed("nn.Linear+nn.ReLU", fused_module=nni.LinearBn1d),
        FUSED,
    ),
    fault("the fused module is missing", "parity", "fbgemm", changed("nn.Linear+nn.ReLU", fused_module=None), FUSED),
    fault(
        "the fuser method is missing",
        "observed parity",
        "fbgemm",
        changed("nn.Linear+nn.ReLU", fuser_method=None),
        FUSED,
    ),
    fault(
        "the fuser method forgets the batch norm",
        "accuracy numerics parity reference",
        "fbgemm",
        changed("nn.Conv2d+nn.BatchNorm2d+nn.ReLU", fuser_method=forgets_the_batch_norm),
        NORMED,
    ),
    fault(
        "the fuser method forgets ReLU",
        "observed parity",
        "fbgemm",
        changed("nn.Linear+nn.ReLU", fuser_method=forgets_the_relu),
        FUSED,
    ),
    fault(
        "the fuser method takes its modules in reverse order",
        "observed parity",
        "fbgemm",
        changed("nn.Linear+nn.ReLU", fuser_method=takes_arguments_in_reverse),
        FUSED,
    ),
    fault(
        "the fuser method returns the layer alone",
        "accuracy numerics observed parity reference",
        "fbgemm",
        changed("nn.Linear+nn.ReLU", fuser_method=lambda is_qat, linear, relu: linear),
        FUSED,
    ),
    fault(
        "the fuser method forgets the slope",
        "accuracy numerics parity reference",
        "onednn",
        changed("nn.Linear+nn.LeakyReLU", fuser_method=takes_leaky_relu),
        static("nn.Linear+nn.LeakyReLU"),
    ),
    fault(
        "the fuser method loses the bias",
        "accuracy numerics parity reference",
        "fbgemm",
        changed("nn.Linear+nn.BatchNorm1d", fuser_method=folds_without_bias),
        static("nn.Linear+nn.BatchNorm1d"),
    ),
    fault(
        "the fuser method flips a sign",
        "accuracy numerics parity reference",
        "fbgemm",
        changed("nn.Conv2d+nn.BatchNorm2d", fuser_method=folds_the_negative),
        static("nn.Conv2d+nn.BatchNorm2d"),
    ),
    fault(
        "the fuser method expects another addition",
        "observed parity",
        "onednn",
        changed(SUM, fuser_method=ConvAdd(True, True, False, operator.add).fuse),
        CONV_ADD,
    ),
    fault("getters are exchanged", "observed parity", "onednn", getters(SUM), CONV_ADD),
    fault(
        "the root node is the other operand",
        "observed parity",
        "onednn",
        changed(SUM, _root_node_getter=ConvAdd(True, True, False, torch.add).root_node),
        CONV_ADD,
    ),
    fault(
        "no input is declared as extra",
        "lowered observed parity reference",
        "onednn",
        changed(SUM, _extra_inputs_getter=lambda pattern: []),
        CONV_ADD,
    ),
    fault(
        "the getter of extra inputs is missing",
        "lowered observed parity reference",
        "onednn",
        changed(SUM, _extra_inputs_getter=None),
        CONV_ADD,
    ),
    fault(
        "the weight has another argument index",
        "lowered parity reference",
        "fbgemm",
        changed("F.linear", _input_type_to_index={"weight": 2, "bias": 1}),
        static("F.linear"),
    ),
    fault(
        "the bias has another argument index",
        "observed parity",
        "fbgemm",
        changed("F.conv2d", _input_type_to_index={"weight": 1, "bias": 3}),
        static("F.conv2d"),
    ),
    fault(
        "no argument is declared as weight or bias",
        "lowered observed parity reference",
        "fbgemm",
        changed("F.linear", _input_type_to_index={}),
        static("F.linear"),
    ),
    fault(
        "the pattern is in reverse order",
        "parity",
        "fbgemm",
        changed("nn.Linear+nn.ReLU", pattern=(nn.ReLU, nn.Linear)),
        FUSED,
    ),
    fault(
        "the pattern is in the nested format",
        "observed parity",
        "fbgemm",
        complex_format("nn.Conv2d+nn.ReLU", (nn.ReLU, nn.Conv2d)),
        static("nn.Conv2d+nn.ReLU"),
        "nn.ReLU(nn.Conv2d)/static-quint8/ptq/default/exact",
    ),
    fault(
        "the nested pattern is in reverse order",
        "parity",
        "fbgemm",
        complex_format("nn.Conv2d+nn.ReLU", (nn.Conv2d, nn.ReLU)),
        static("nn.Conv2d+nn.ReLU"),
    ),
]
