"""wrong values: onednn/nn.Linear+nn.LeakyReLU/static-quint8/ptq/rank3_batch0/pairs@onednn
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Linear(1, 2)
        self.leakyrelu = nn.LeakyReLU(0.25)
    def forward(self, x):
        return self.leakyrelu(self.op(x))

x = torch.zeros((0, 1, 1))
mapping = get_default_qconfig_mapping("onednn")
config = get_onednn_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(1.0)
model.eval()
expected = tuple(model(x).shape)
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = tuple(lowered(x).shape)
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES numerics: the shape" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
