"""wrong values: fbgemm/F.conv3d+nn.ReLU/static-quint8/ptq/depthwise/pairs@fbgemm
Expected: the result of the float model, but for rounding."""

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
        self.weight = nn.Parameter(torch.empty((8, 1, 3, 3, 3)))
        self.bias = nn.Parameter(torch.empty((8,)))
        self.relu = nn.ReLU()
    def forward(self, x):
        return self.relu(nn.functional.conv3d(x, self.weight, self.bias, (1, 1, 1), (1, 1, 1), (1, 1, 1), 8))

x = torch.ones((1, 8, 1, 1, 2))
x_calibration = torch.tensor([[[[[-0.3203125, -0.015625]]], [[[0.2578125, 0.546875]]], [[[-0.25, -0.1875]]],
    [[[-0.046875, -0.03125]]], [[[0.1328125, -0.1328125]]], [[[-0.1015625, 0.2265625]]], [[[0.546875, 0.25]]],
    [[[0.2890625, -0.234375]]]]])
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(1.0)
model.eval()
expected = model(x)[0, 5, 0, 0, 1]
prepared = prepare_fx(model, mapping, (x_calibration,), backend_config=config)
prepared(x_calibration)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)[0, 5, 0, 0, 1]
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs() > 0.021  # 1.5 steps of the output
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
