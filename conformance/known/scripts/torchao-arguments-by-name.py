"""A module that passes its bias by name, quantized.
Expected: the bias is added, as before."""

import torch
import torch.nn.functional as F
from torch import nn
from torchao.quantization import Int8WeightOnlyConfig, quantize_


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Linear(8, 2)

    def forward(self, x):
        return F.linear(x, self.op.weight, bias=self.op.bias)


torch.set_grad_enabled(False)
model = Model().eval()
model.op.weight.fill_(0.0)
model.op.bias.fill_(5.0)
expected = model(torch.ones(1, 8))
quantize_(model, Int8WeightOnlyConfig())
got = model(torch.ones(1, 8))
print(f"expected {expected.tolist()}\ngot      {got.tolist()}")
deviates = not torch.equal(expected, got)
print("DEVIATES numerics: without the bias" if deviates else "CONFORMS")
raise SystemExit(deviates)
