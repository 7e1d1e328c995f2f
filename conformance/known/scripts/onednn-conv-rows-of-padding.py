"""wrong values: onednn/nn.Conv3d+nn.ReLU/static-quint8/ptq/rows_of_padding/pairs@onednn
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
        self.op = nn.Conv3d(16, 16, (1, 1, 1), padding=(1, 0, 0), groups=16)
        self.relu = nn.ReLU()
    def forward(self, x):
        return self.relu(self.op(x))

x = torch.linspace(-1.0, 1.0, 16).reshape((1, 16, 1, 1, 1))
mapping = get_default_qconfig_mapping("onednn")
config = get_onednn_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(1.0)
model.eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)[0, 0, 1, 0, 0]
expected = torch.tensor(0.007839307)  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.allclose(got, expected)
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
