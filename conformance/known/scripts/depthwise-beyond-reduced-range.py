"""wrong values: fbgemm/nn.PReLU before a depthwise convolution
Expected: the result of the reference model, but for rounding."""

import copy
import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, convert_to_reference_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

model = nn.Sequential(nn.PReLU(init=1.0), nn.Conv3d(8, 8, 3, padding=1, groups=8, bias=False)).eval()
model[1].weight.fill_(1.0)
x = torch.ones(1, 8, 4, 4, 4)
x[:, :, 0] = -0.1  # so that the scale is 1.1 / 255
prepared = prepare_fx(model, get_default_qconfig_mapping("fbgemm"), (x,))
prepared(x)
reference = convert_to_reference_fx(copy.deepcopy(prepared))
lowered = convert_fx(prepared)
expected, got = reference(x)[0, 0, 2, 2], lowered(x)[0, 0, 2, 2]
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs().max() > 0.2
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
