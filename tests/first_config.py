"""A vendor's first config, with eight mistakes, and an engine with one fault."""

import torch
import torch.ao.nn.quantized as nnq
import torch.nn.functional as F
from torch import nn
from torch.ao.nn.quantized import reference
from torch.ao.quantization.backend_config import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)
from torch.fx import GraphModule

from conformance.engines.torch_engine import TorchEngine

QUINT8 = DTypeConfig(torch.quint8, torch.quint8)
WEIGHTED = DTypeConfig(torch.quint8, torch.quint8, torch.qint8, torch.float)
SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
EXACT = DTypeWithConstraints(torch.quint8, scale_exact_match=1 / 128, zero_point_exact_match=0)


def entry(
    pattern: object, dtypes: DTypeConfig = QUINT8, root: type | None = None, layer: type | None = None
) -> BackendPatternConfig:
    one = BackendPatternConfig(pattern).set_dtype_configs([dtypes])
    if root:
        one.set_root_module(root)
    if layer:
        one.set_reference_quantized_module(layer)
    return one


RIGHT = [
    entry(nn.Linear, WEIGHTED, nn.Linear, reference.Linear),  # the engine's kernel is not
    entry(nn.Conv2d, WEIGHTED, nn.Conv2d, reference.Conv2d),
    entry(nn.Hardswish),
]
MISTAKES = {
    "day/F.gelu/static-quint8": entry(F.gelu, DTypeConfig(torch.quint8, torch.float16)),  # no QConfig has two dtypes
    "day/torch.mul/static-quint8": entry(torch.mul).set_observation_type(SHARED),  # products leave the input's range
    "day/nn.Conv1d/static-quint8": entry(nn.Conv1d, WEIGHTED, nn.Conv1d),  # no reference module
    "day/nn.Conv3d/static-quint8": entry(nn.Conv3d, WEIGHTED, None, reference.Conv3d),  # no root module
    "day/nn.ConvTranspose2d/static-quint8": entry(  # no kernel has weights of quint8
        nn.ConvTranspose2d,
        DTypeConfig(torch.quint8, torch.quint8, torch.quint8, torch.float),
        nn.ConvTranspose2d,
        reference.ConvTranspose2d,
    ),
    "day/nn.Sigmoid/static-quint8": entry(nn.Sigmoid, DTypeConfig(torch.quint8, EXACT)),  # twice the range
    "day/nn.ReLU+nn.BatchNorm2d/static-quint8": entry((nn.ReLU, nn.BatchNorm2d)),  # nothing fuses them in this order
    "day/nn.Embedding/static-quint8": entry(nn.Embedding, WEIGHTED, nn.Embedding, reference.Embedding),  # indices
}
CONFIG = BackendConfig("day").set_backend_pattern_configs([*RIGHT, *MISTAKES.values()])


class Day(TorchEngine):
    """torch's engine x86, with linear layers whose results are one step too low."""

    name = "day"
    quantized_engine = "x86"
    reduced_range = True

    def lower(self, model: GraphModule) -> GraphModule:
        for module in model.modules():
            if isinstance(module, nnq.Linear):
                weight, bias = module._weight_bias()  # type: ignore[no-untyped-call]
                step = torch.full((weight.shape[0],), float(module.scale))
                module.set_weight_bias(weight, -step if bias is None else bias - step)
        return model
