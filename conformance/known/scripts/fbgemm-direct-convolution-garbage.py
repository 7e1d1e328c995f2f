"""wrong values: fbgemm/F.conv_transpose2d/static-quint8/ptq/upsampling/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

model = nn.Sequential(nn.ConvTranspose2d(8, 8, 2, stride=2)).eval()  # as a U-Net has it
x = torch.ones((4, 8, 8, 8))
expected = model(x)
prepared = prepare_fx(model, get_default_qconfig_mapping("fbgemm"), (x,))
prepared(x)
lowered = convert_fx(prepared)
got = lowered(x)
wrong = [n for n in range(4) if (got[n] - expected[n]).abs().max() > 0.1]
print(f"expected no item of the batch wrong\ngot      items {wrong}")
print("DEVIATES numerics: the values" if wrong else "CONFORMS")
raise SystemExit(bool(wrong))
