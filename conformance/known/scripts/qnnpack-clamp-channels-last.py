"""wrong values: qnnpack/nn.ReLU6/static-quint8/ptq/channels_last/exact@qnnpack
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"
torch.set_grad_enabled(False)

x = torch.arange(8.0).view(1, 2, 2, 2).contiguous(memory_format=torch.channels_last)
model = nn.Sequential(nn.ReLU6()).eval()
expected = model(x)
prepared = prepare_fx(model, get_default_qconfig_mapping("qnnpack"), (x,))
prepared(x)
lowered = convert_fx(prepared)
got = lowered(x)
print(f"expected {expected.flatten()}\ngot      {got.flatten()}")
deviates = (got - expected).abs().max() > 0.1
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
