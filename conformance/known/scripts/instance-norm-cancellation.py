"""wrong values: fbgemm/nn.InstanceNorm1d/static-quint8/ptq/default/codes@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

x = 250 + torch.randint(0, 2, (1, 1, 512, 512), generator=torch.Generator().manual_seed(0)).float()
x[0, 0, 0, :2] = torch.tensor([0.0, 255.0])  # the range of the input: its scale is 1, so all values are exact
x = x.contiguous(memory_format=torch.channels_last)
model = nn.Sequential(nn.InstanceNorm2d(1)).eval()
expected = model(x)
prepared = prepare_fx(model, get_default_qconfig_mapping("fbgemm"), (x,))
prepared(x)
lowered = convert_fx(prepared)
got = lowered(x)
error = (got - expected).abs()[0, 0, 1:].max() / getattr(lowered, "0").scale
print(f"expected within 1 step of the output\ngot      {error:.0f} steps")
deviates = error > 1
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
