"""IntxWeightOnlyConfig with one bit and its default mapping.
Expected: codes that tell weights apart."""

import torch
from torch import nn
from torchao.quantization import IntxWeightOnlyConfig, quantize_

torch.set_grad_enabled(False)
model = nn.Sequential(nn.Linear(4, 1, bias=False)).eval()
model[0].weight.copy_(torch.tensor([[1.0, -1.0, 1.0, -1.0]]))
quantize_(model, IntxWeightOnlyConfig(weight_dtype=torch.int1))
got = model[0].weight.dequantize()
print(f"expected weights that are not all equal\ngot      {got.tolist()}")
deviates = not got.any()
print("DEVIATES annotated: all weights are zero" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
