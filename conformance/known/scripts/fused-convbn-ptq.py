"""silently in float: fbgemm/nni.ConvBn2d/static-quint8/ptq/default/exact@fbgemm
Expected: a quantized convolution, as for the same two modules without the fused one."""

import torch
from torch import nn
from torch.ao.nn import intrinsic as nni
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

def layers(model):
    x = torch.ones((1, 1, 4, 4))
    prepared = prepare_fx(model.eval(), get_default_qconfig_mapping("fbgemm"), (x,))
    prepared(x)
    lowered = convert_fx(prepared)
    return {type(module).__module__ for module in lowered.modules() if "conv" in type(module).__name__.lower()}

conv, norm = nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)
expected = layers(nn.Sequential(conv, norm))
got = layers(nn.Sequential(nni.ConvBn2d(conv, norm)))
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES lowered: the layer runs in float" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
