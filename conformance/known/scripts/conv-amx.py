"""wrong values: fbgemm/nn.Conv2d/static-quint8/ptq/32to32_24x24_k8_s8/initialized@x86
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "x86"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Conv2d(16, 16, 8)
    def forward(self, x):
        return self.op(x)

x = torch.ones((1, 16, 16, 24))
mapping = get_default_qconfig_mapping("x86")
config = get_fbgemm_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(1.0)
model.eval()
expected = model(x)[0, 0, 0, 1]
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)[0, 0, 0, 1]
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs() > 12.0  # 1.5 steps of the output
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
