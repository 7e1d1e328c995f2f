"""Int4WeightOnlyConfig of a layer whose features no group divides.
Expected: a quantized weight, or an exception."""

import torch
from torch import nn
from torchao.quantization import Int4WeightOnlyConfig, quantize_

model = nn.Sequential(nn.Linear(72, 8)).bfloat16()
quantize_(model, Int4WeightOnlyConfig(group_size=32))
deviates = type(model[0].weight.data) is torch.Tensor
print(f"the weight is a {type(model[0].weight.data).__name__} of {model[0].weight.dtype}")
print("DEVIATES annotated: in float" if deviates else "CONFORMS")
raise SystemExit(deviates)
