"""far from the float model: onednn/F.linear+nn.Tanh/static-quint8/ptq/default/typical@onednn
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
        self.weight = nn.Parameter(torch.empty((1, 2)))
        self.bias = nn.Parameter(torch.empty((1,)))
        self.tanh = nn.Tanh()
    def forward(self, x):
        return self.tanh(nn.functional.linear(x, self.weight, self.bias))

x = torch.tensor([[-0.6807556, -1.0721436], [0.7993927, -0.807251], [-0.115982056, -1.3324738]])
mapping = get_default_qconfig_mapping("onednn")
config = get_onednn_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(1.0)
model.eval()
expected = model(x)
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs().max() > expected.abs().max() / 4
print("DEVIATES accuracy: not the result of the float model" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
