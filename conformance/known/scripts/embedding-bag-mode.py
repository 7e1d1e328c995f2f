"""wrong values: fbgemm/nn.EmbeddingBag/weight-quint8/ptq/default/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, float_qparams_weight_only_qconfig
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

model = nn.Sequential(nn.EmbeddingBag(4, 8)).eval()  # of the default mode, "mean"
model[0].weight.copy_(torch.arange(4.0)[:, None].expand(4, 8))
x = torch.tensor([[1, 2, 3]])
mapping = QConfigMapping().set_global(float_qparams_weight_only_qconfig)
expected = model(x)[0, 0]
prepared = prepare_fx(model, mapping, (x,))
prepared(x)
lowered = convert_fx(prepared)
got = lowered(x)[0, 0]
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs() > 0.1
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
