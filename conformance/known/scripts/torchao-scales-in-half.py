"""Int8WeightOnlyConfig of a bfloat16 layer: its float32 scale is that of bfloat16 arithmetic.
Expected: the greatest magnitude over 127.5, in float32."""

import torch
from torch import nn
from torchao.quantization import Int8WeightOnlyConfig, quantize_

torch.set_grad_enabled(False)
model = nn.Sequential(nn.Linear(2, 1, bias=False)).bfloat16().eval()
model[0].weight.copy_(torch.tensor([[1.0, 0.25]]))
quantize_(model, Int8WeightOnlyConfig())
got, expected = model[0].weight.scale.item(), 1 / 127.5
print(f"expected {expected!r}\ngot      {got!r} of {model[0].weight.scale.dtype}")
deviates = abs(got - expected) > 1e-6 * expected
print("DEVIATES annotated: the scale" if deviates else "CONFORMS")
raise SystemExit(deviates)
