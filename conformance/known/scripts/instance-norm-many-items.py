"""wrong values: fbgemm/nn.InstanceNorm2d/static-quint8/ptq/many_items/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

x = torch.randn(16, 4, 2, 2, generator=torch.Generator().manual_seed(0))
x = x.contiguous(memory_format=torch.channels_last)
model = nn.Sequential(nn.InstanceNorm2d(4)).eval()
expected = model(x)
prepared = prepare_fx(model, get_default_qconfig_mapping("fbgemm"), (x,))
prepared(x)
lowered = convert_fx(prepared)
got = lowered(x)
wrong = [n for n in range(16) if (got[n] - expected[n]).abs().max() > 0.2]
print(f"expected no item of the batch wrong\ngot      items {wrong}")
print("DEVIATES numerics: the values" if wrong else "CONFORMS")
raise SystemExit(bool(wrong))
