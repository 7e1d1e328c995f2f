"""wrong values: onednn/nn.PReLU/static-quint8/ptq/2x256x7x7/initialized@onednn
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.PReLU(1)
    def forward(self, x):
        return self.op(x)

x = torch.tensor([[[[-1.0]]], [[[1.0]]]])
mapping = get_default_qconfig_mapping("onednn")
config = get_onednn_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)
expected = torch.tensor([[[[-0.24987794]]], [[[0.98971266]]]])  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.allclose(got, expected)
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
