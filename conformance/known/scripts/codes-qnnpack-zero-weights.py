"""wrong values: qnnpack/nn.Conv2d/static-quint8/ptq/one_weight_per_channel/codes@qnnpack
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"
torch.set_grad_enabled(False)

model = nn.Sequential(nn.Conv2d(1, 1, 1)).eval()  # a channel that was pruned
model[0].weight.fill_(0.0)
model[0].bias.fill_(8.0)
x = torch.linspace(-1, 1, 4).view(1, 1, 2, 2)
expected = model(x)[0, 0, 0, 0]
prepared = prepare_fx(model, get_default_qconfig_mapping("qnnpack"), (x,))
prepared(x)
lowered = convert_fx(prepared)
got = lowered(x)[0, 0, 0, 0]
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs() > 0.1
print("DEVIATES numerics: the value" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
