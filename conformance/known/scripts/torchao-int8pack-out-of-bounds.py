"""torch.compile of an int8 weight-only layer in bfloat16: the kernel reads beyond its weights.
Expected: what the layer gives without torch.compile, but for rounding."""

import copy

import torch
from torch import nn
from torchao.quantization import Int8WeightOnlyConfig, quantize_

torch.set_grad_enabled(False)
found = False
print("DEVIATES crashes: unless more is printed", flush=True)
for features in range(17, 129, 2):
    torch.compiler.reset()
    model = nn.Sequential(nn.Linear(features, 64, bias=False)).bfloat16().eval()
    model[0].weight.fill_(1.0)
    quantize_(model, Int8WeightOnlyConfig())
    x = torch.ones(4, features, dtype=torch.bfloat16)
    got, expected = torch.compile(copy.deepcopy(model))(x), model(x)
    if not torch.allclose(got, expected, rtol=0.02):
        print(f"DEVIATES numerics: {features} features: expected {expected[0, 0]}, got {got[0, 0]}")
        found = True
raise SystemExit(found)
