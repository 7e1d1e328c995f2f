"""wrong values: onednn/F.linear+nn.Tanh/static-quint8/ptq/default/exact@onednn
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
        self.weight = nn.Parameter(torch.full((1, 2), 0.25))
    def forward(self, x):
        return torch.tanh(nn.functional.linear(x, self.weight))

x = torch.tensor([[3.0, 1.0], [-2.0, 1.0]])
model = Model().eval()
expected = model(x).flatten()
config = get_onednn_backend_config()
prepared = prepare_fx(model, get_default_qconfig_mapping("onednn"), (x,), backend_config=config)
prepared(x)
got = convert_fx(prepared, backend_config=config)(x).flatten()
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs().max() > 0.05
print("DEVIATES accuracy: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
