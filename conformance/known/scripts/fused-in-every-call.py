"""wrong values: qnnpack/nn.Conv2d+nn.BatchNorm2d/static-quint8/ptq/other_norm/contexts@qnnpack
Expected: each call of the layer is followed by what follows it in the float model."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Conv2d(1, 1, 1)
        self.relu = nn.ReLU()
    def forward(self, x):
        return self.relu(self.op(x)), self.op(x)

x = torch.linspace(-1, 1, 8).view(1, 1, 2, 4)
model = Shared().eval()
model.op.weight.fill_(1.0)
model.op.bias.fill_(0.0)
expected = model(x)[1].min()
prepared = prepare_fx(model, get_default_qconfig_mapping("fbgemm"), (x,))
got = prepared(x)[1].min()
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
