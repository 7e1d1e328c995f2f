"""wrong codes: executorch/F.embedding/weight-quint8/ptq/default/typical@executorch
Expected: the codes of torch.quantize_per_channel, which rounds the sum of quotient and zero point."""

import torch
from torch.ao.quantization.fx import _decomposed  # registers quantized_decomposed

weight = torch.linspace(-1, 1, 12).view(3, 4)
scales, zero_points = torch.full((3,), 0.01), torch.full((3,), 100.75)
per_channel = torch.quantize_per_channel(weight, scales, zero_points, 0, torch.quint8)
expected = per_channel.int_repr()
got = torch.ops.quantized_decomposed.quantize_per_channel(weight, scales, zero_points, 0, 0, 255, torch.uint8)
print(f"expected {expected[0].tolist()}\ngot      {got[0].tolist()}")
deviates = not got.equal(expected)
print("DEVIATES numerics: the codes" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
