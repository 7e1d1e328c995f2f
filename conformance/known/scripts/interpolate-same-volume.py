"""wrong values: fbgemm/F.interpolate/static-quint8/ptq/volume_same_flat/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import ctypes

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def forward(self, x):
        return nn.functional.interpolate(x, size=(1, 1, 1))

x = torch.tensor([[[[[-1.0]]]], [[[[1.0]]]]])
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model().eval()
expected = model(x)
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
mallopt = ctypes.CDLL(None).mallopt
mallopt(-6, 170)  # M_PERTURB: new memory holds 0x55 in every byte
got = lowered(x)
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs().max() > 0.024  # 1.5 steps of the output
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
