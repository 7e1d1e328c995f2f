"""Float8WeightOnlyConfig of a layer with a row of zeros.
Expected: zeros from that row."""

import torch
from torch import nn
from torchao.quantization import Float8WeightOnlyConfig, quantize_

torch.set_grad_enabled(False)
model = nn.Sequential(nn.Linear(8, 2, bias=False)).eval()
model[0].weight.fill_(1.0)
model[0].weight[1] = 0.0
expected = model(torch.ones(1, 8))
quantize_(model, Float8WeightOnlyConfig())
got = model(torch.ones(1, 8))
print(f"expected {expected.tolist()}\ngot      {got.tolist()}")
deviates = bool(got.isnan().any())
print("DEVIATES numerics: NaN" if deviates else "CONFORMS")
raise SystemExit(deviates)
