"""The config of onednn: the shared families, and fusions that only oneDNN has."""

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.quantized.reference as nnqr
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig
from torch.ao.quantization.utils import MatchAllNode
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from . import dtypes, families
from .families import DTypes, Entries, Module


@dataclass(frozen=True)
class ConvAdd:
    """A 2-d convolution and an addition, which oneDNN executes as a post-op that accumulates into the other operand.

    torch hands patterns, matched modules and matched nodes around in one shape, the reversed nested tuple
    `(relu, (add, left, right))`, so `_parts` takes all three of them apart.
    """

    relu: bool
    conv_on_right: bool
    batch_norm: bool
    add: Callable[..., Any]

    @property
    def fused(self) -> Module:
        """The fused module of the pattern."""
        return nni.ConvAddReLU2d if self.relu else nni.ConvAdd2d

    def pattern(self) -> Any:
        """Return the pattern in torch's reversed nested format."""
        conv = (nn.BatchNorm2d, nn.Conv2d) if self.batch_norm else nn.Conv2d
        operands = (MatchAllNode, conv) if self.conv_on_right else (conv, MatchAllNode)
        added = (self.add, *operands)
        return (nn.ReLU, added) if self.relu else added

    def _parts(self, matched: Any) -> tuple[Any, Any, Any, list[Any]]:
        """Return the convolution, its batch norm or None, the other operand, and the add with the ReLU if any."""
        *relu, (add, left, right) = matched if self.relu else (matched,)
        branch, other = (right, left) if self.conv_on_right else (left, right)
        batch_norm, conv = branch if self.batch_norm else (None, branch)
        return conv, batch_norm, other, [add, *relu]

    def fuse(self, is_qat: bool, *matched: Any) -> nn.Module:
        """Return the fused module; raises NotImplementedError for QAT with batch norm, which no QAT module covers."""
        conv, batch_norm, _, post_ops = self._parts(matched)
        if batch_norm is not None:
            if is_qat:
                raise NotImplementedError(f"no QAT module fuses {conv}, {batch_norm} and an addition")
            conv = fuse_conv_bn_eval(conv, batch_norm)
        return self.fused(conv, *post_ops)

    def root_node(self, matched: Any) -> Any:
        """Return the node that the fused module replaces."""
        return self._parts(matched)[0]

    def extra_inputs(self, matched: Any) -> list[Any]:
        """Return the fused module's inputs beyond the convolution's own."""
        return [self._parts(matched)[2]]

    def entry(self, dtype_configs: DTypes) -> BackendPatternConfig:
        """Return the entry of the pattern."""
        return (
            families.entry(None, dtype_configs, fused=self.fused, fuser=self.fuse)
            ._set_pattern_complex_format(self.pattern())
            ._set_root_node_getter(self.root_node)
            ._set_extra_inputs_getter(self.extra_inputs)
        )


def conv_add(relu: bool, dtype_configs: DTypes) -> Entries:
    """Return the entries of convolution and addition, with ReLU or without, and of their fused module."""
    forms = [
        ConvAdd(relu, conv_on_right, batch_norm, add)
        for conv_on_right, batch_norm, add in itertools.product((False, True), (True, False), (torch.add, operator.add))
    ]
    return [
        *(form.entry(dtype_configs) for form in forms),
        families.entry(forms[0].fused, dtype_configs, root=nn.Conv2d, reference=nnqr.Conv2d),
    ]


def fuse_linear_bn_leaky_relu(
    is_qat: bool, linear: nn.Linear, batch_norm: nn.BatchNorm1d, leaky_relu: nn.LeakyReLU
) -> nn.Module:
    """Return the fused module; raises AssertionError for mixed modes and NotImplementedError for QAT."""
    if not linear.training == batch_norm.training == leaky_relu.training:
        raise AssertionError("linear, batch norm and leaky ReLU must all be in training mode or all in evaluation mode")
    if is_qat or type(linear) is not nn.Linear:
        raise NotImplementedError(f"no module fuses {linear}, {batch_norm} and {leaky_relu} with is_qat={is_qat}")
    return families.in_sequence(nni.LinearLeakyReLU)(is_qat, fuse_linear_bn_eval(linear, batch_norm), leaky_relu)


def linear_activation(activations: tuple[Module, Callable[..., Any]], fused: Module, dtype_configs: DTypes) -> Entries:
    """Return the entries of linear followed by an activation, as module and function."""
    return [
        *families.pairs(nn.Linear, activations, dtype_configs, fused),
        families.entry(fused, dtype_configs, root=nn.Linear, reference=nnqr.Linear),
        *families.pairs(F.linear, activations, dtype_configs),
    ]


def get_onednn_backend_config() -> BackendConfig:
    """Return a new config of torch's onednn engine."""
    static = (dtypes.STATIC_QUINT8,)
    weighted = (dtypes.STATIC_QUINT8_WEIGHTED,)
    dynamic = (dtypes.DYNAMIC_QUINT8,)
    weight_only = (dtypes.WEIGHT_ONLY_QINT8,)
    linear = (*weighted, *dynamic)
    return BackendConfig("onednn").set_backend_pattern_configs(
        [
            *families.convolutions(weighted),
            *conv_add(False, weighted),
            *conv_add(True, weighted),
            *families.linear(linear),
            *linear_activation((nn.LeakyReLU, F.leaky_relu), nni.LinearLeakyReLU, linear),
            families.entry(
                (nn.Linear, nn.BatchNorm1d, nn.LeakyReLU),
                linear,
                fused=nni.LinearLeakyReLU,
                fuser=fuse_linear_bn_leaky_relu,
            ),
            *linear_activation((nn.Tanh, torch.tanh), nni.LinearTanh, linear),
            *families.binary(families.BINARY_OPS, static),
            *families.matmul(static),
            *families.cat(static),
            *families.default_ops(static),
            *families.fixed_qparams_ops(static),
            *families.share_qparams_ops(static),
            *families.batch_norm(static),
            *families.layer_norm((dtypes.STATIC_QUINT8_FLOAT_WEIGHT,)),
            *families.rnn(dynamic),
            *families.embedding(weight_only),
            *families.embedding_bag(weight_only),
        ]
    )
