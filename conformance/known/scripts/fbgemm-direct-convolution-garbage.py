"""wrong values: fbgemm/F.conv_transpose2d/static-quint8/ptq/upsampling/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import ctypes

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty((8, 8, 2, 2)))
        self.bias = nn.Parameter(torch.empty((8,)))
    def forward(self, x):
        return nn.functional.conv_transpose2d(x, self.weight, self.bias, (1, 1), (0, 0), (0, 0), 1, (1, 1))

x = torch.zeros((2, 8, 1, 1))
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(1.0)
model.eval()
expected = model(x)
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
mallopt = ctypes.CDLL(None).mallopt
mallopt(-6, 170)  # M_PERTURB: new memory holds 0x55 in every byte
got = lowered(x)
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs().max() > 0.012  # 1.5 steps of the output
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
