"""wrong values: fbgemm/nn.Linear/static-quint8/ptq/twice/contexts@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Linear(4, 4)
    def forward(self, x):
        return self.op(x), self.op(x * 0.01)

model = Model().eval()
model.op.weight.copy_(torch.eye(4))
model.op.bias.zero_()
x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
expected = model(x)[0]
prepared = prepare_fx(model, get_default_qconfig_mapping("fbgemm"), (x,))
prepared(x)
lowered = convert_fx(prepared)
got = lowered(x)[0]
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs().max() > 0.1
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
