"""wrong values: fbgemm/F.pixel_unshuffle/static-quint8/ptq/batch0/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def forward(self, x):
        return nn.functional.pixel_unshuffle(x, 2)

x = torch.zeros((0, 1, 2, 2))
x_calibration = torch.linspace(-4.0, 3.9375, 8).reshape((2, 1, 2, 2))
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model().eval()
expected = tuple(model(x).shape)
prepared = prepare_fx(model, mapping, (x_calibration,), backend_config=config)
prepared(x_calibration)
lowered = convert_fx(prepared, backend_config=config)
got = tuple(lowered(x).shape)
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES numerics: the shape" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
