"""A config of constraints that no backend sets, each alone, which shows whether torch enforces them."""

import operator
from collections.abc import Mapping

import torch
import torch.ao.nn.quantized.reference as nnqr
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, DTypeConfig, DTypeWithConstraints

from . import families

QUANT_MIN = {"quant_min_lower_bound": -64}
QUANT_MAX = {"quant_max_upper_bound": 63}
SCALE_MAX = {"scale_max_upper_bound": 2.0**-4}
SCALE = {"scale_exact_match": 2.0**-8}
ZERO_POINT = {"zero_point_exact_match": 0}


def _activation(constraint: Mapping[str, float]) -> list[DTypeConfig]:
    activation = DTypeWithConstraints(torch.qint8, **constraint)  # type: ignore[arg-type]
    return [DTypeConfig(input_dtype=activation, output_dtype=activation)]


def _weight(constraint: Mapping[str, float]) -> list[DTypeConfig]:
    weight = DTypeWithConstraints(torch.qint8, **constraint)  # type: ignore[arg-type]
    return [DTypeConfig(torch.quint8, torch.quint8, weight, torch.float)]


def get_lone_backend_config() -> BackendConfig:
    """Return a new config with one constraint for each pattern, on both activations or on the weight."""
    return BackendConfig("lone").set_backend_pattern_configs(
        [
            families.entry(torch.add, _activation(QUANT_MIN)),
            families.entry(torch.mul, _activation(QUANT_MAX)),
            families.entry(operator.add, _activation(SCALE_MAX)),
            families.entry(operator.mul, _activation(SCALE)),
            families.entry(torch.matmul, _activation(ZERO_POINT)),
            families.functional(F.conv1d, _weight(QUANT_MIN), weight=1, bias=2),
            families.functional(F.conv2d, _weight(QUANT_MAX), weight=1, bias=2),
            families.functional(F.linear, _weight(SCALE_MAX), weight=1, bias=2),
            families.entry(nn.Conv1d, _weight(QUANT_MIN), root=nn.Conv1d, reference=nnqr.Conv1d),
            families.entry(nn.Conv2d, _weight(QUANT_MAX), root=nn.Conv2d, reference=nnqr.Conv2d),
            families.entry(nn.Linear, _weight(SCALE_MAX), root=nn.Linear, reference=nnqr.Linear),
        ]
    )
