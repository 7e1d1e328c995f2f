"""the float model raises AttributeError: fbgemm/Tensor.hardsigmoid/static-quint8/ptq/default/exact@fbgemm
Expected: no exception."""

import torch
from torch import nn

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def forward(self, x):
        return x.hardsigmoid()

x = torch.zeros((1, 1, 1, 1))
expected = got = "no exception"
try:
    model = Model().eval()
    model(x)
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES matched: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
