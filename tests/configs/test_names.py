"""Patterns are named as users write them."""

import operator
import time

import pytest
import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
import torch.ao.nn.quantized.reference as nnqr
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.backend_config import BackendPatternConfig
from torch.ao.quantization.utils import MatchAllNode

from conformance.configs.names import _names, config_pattern, pattern_name
from conformance.configs.registry import BACKENDS

NAMES = {
    "nn.Conv2d": nn.Conv2d,
    "nni.ConvReLU2d": nni.ConvReLU2d,
    "nnqat.Conv2d": nnqat.Conv2d,
    "nniqat.ConvReLU2d": nniqat.ConvReLU2d,
    "Tensor.relu_": "relu_",
    "torch.matmul": torch.matmul,
    "operator.add": operator.add,
    "nn.Conv2d+nn.ReLU": (nn.Conv2d, nn.ReLU),
    "nn.Conv2d+nn.BatchNorm2d+F.relu": (nn.Conv2d, nn.BatchNorm2d, F.relu),
    "operator.add+torch.relu": (operator.add, torch.relu),
    "torch.add(*,nn.Conv2d)": (torch.add, MatchAllNode, nn.Conv2d),
    "operator.add(nn.BatchNorm2d(nn.Conv2d),*)": (operator.add, (nn.BatchNorm2d, nn.Conv2d), MatchAllNode),
    "nn.ReLU(operator.add(nn.Conv2d,*))": (nn.ReLU, (operator.add, nn.Conv2d, MatchAllNode)),
}

SAME_FUNCTION = {
    "F.avg_pool1d": torch.avg_pool1d,
    "F.avg_pool2d": torch._C._nn.avg_pool2d,
    "F.adaptive_avg_pool1d": torch.adaptive_avg_pool1d,
    "F.conv2d": torch.conv2d,
    "F.max_pool2d": F.max_pool2d,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_pattern_is_named_as_users_write_it(name: str) -> None:
    assert pattern_name(NAMES[name]) == name


@pytest.mark.parametrize("name", SAME_FUNCTION)
def test_a_function_of_several_names_is_named_after_its_functional(name: str) -> None:
    assert pattern_name(SAME_FUNCTION[name]) == name


def test_different_functions_of_one_name_have_different_pattern_names() -> None:
    assert (pattern_name(F.relu), pattern_name(torch.relu)) == ("F.relu", "torch.relu")
    assert (pattern_name(torch.add), pattern_name(operator.add)) == ("torch.add", "operator.add")


def test_a_callable_outside_the_namespaces_is_named_after_its_module() -> None:
    assert (
        pattern_name(BackendPatternConfig) == "torch.ao.quantization.backend_config.backend_config.BackendPatternConfig"
    )
    assert pattern_name(torch.Tensor) == "torch.Tensor"
    assert pattern_name((nnqr.Linear, nn.ReLU)) == "torch.ao.nn.quantized.reference.modules.linear.Linear+nn.ReLU"


@pytest.mark.parametrize("backend", BACKENDS)
def test_names_are_unique_within_a_config(backend: str) -> None:
    names = [pattern_name(config_pattern(entry)) for entry in BACKENDS[backend].factory().configs]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_pattern_of_the_backends_has_a_short_name(backend: str) -> None:
    prefixes = {"nn", "F", "torch", "operator", "Tensor", "nni", "nnqat", "nniqat"}
    for entry in BACKENDS[backend].factory().configs:
        name = pattern_name(config_pattern(entry))
        parts = name.replace("(", "+").replace(")", "").replace(",", "+").split("+")
        assert all(part == "*" or (part.count(".") == 1 and part.split(".")[0] in prefixes) for part in parts), name


@pytest.mark.parametrize(
    ("nested", "pattern"),
    [
        (nn.Conv2d, nn.Conv2d),
        ((nn.ReLU, nn.Conv2d), (nn.Conv2d, nn.ReLU)),
        ((nn.ReLU, (nn.BatchNorm2d, nn.Conv2d)), (nn.Conv2d, nn.BatchNorm2d, nn.ReLU)),
        ((torch.add, nn.Conv2d, MatchAllNode), (torch.add, nn.Conv2d, MatchAllNode)),
        ((nn.ReLU, MatchAllNode), (nn.ReLU, MatchAllNode)),
        ((nn.ReLU, (torch.add, nn.Conv2d, nn.Conv2d)), (nn.ReLU, (torch.add, nn.Conv2d, nn.Conv2d))),
    ],
)
def test_a_chain_in_the_nested_format_is_the_sequence_it_matches(nested: object, pattern: object) -> None:
    assert config_pattern(BackendPatternConfig()._set_pattern_complex_format(nested)) == pattern


def test_a_pattern_in_the_flat_format_is_itself() -> None:
    assert config_pattern(BackendPatternConfig((nn.Conv2d, nn.ReLU))) == (nn.Conv2d, nn.ReLU)


def test_naming_is_fast() -> None:
    _names.cache_clear()
    start = time.process_time()
    pattern_name(nn.Conv2d)
    assert time.process_time() - start < 0.05
    assert _names() is _names()
