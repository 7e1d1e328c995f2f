"""wrong values: onednn/nn.ConvTranspose2d/static-quint8/ptq/default/exact@onednn
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import MinMaxObserver, QConfig, QConfigMapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"
torch.set_grad_enabled(False)

model = nn.Sequential(nn.ConvTranspose2d(8, 4, 2, stride=2)).eval()  # as a U-Net has it
model[0].weight.copy_(torch.linspace(-1, 1, 128).view(8, 4, 2, 2))
weight = MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
mapping = QConfigMapping().set_global(QConfig(activation=MinMaxObserver, weight=weight))
x = torch.linspace(-1, 1, 8).view(1, 8, 1, 1)
expected = model(x)
prepared = prepare_fx(model, mapping, (x,))
prepared(x)
lowered = convert_fx(prepared)
got = lowered(x)
print(f"expected {expected[0, :, 0, 0]}\ngot      {got[0, :, 0, 0]}")
deviates = (got - expected).abs().max() > 0.1
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
