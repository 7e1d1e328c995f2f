"""wrong values: fbgemm/nn.Embedding/weight-quint4x2/ptq/odd_width/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, float_qparams_weight_only_qconfig_4bit
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)
x = torch.zeros((1,), dtype=torch.int64)
mapping = QConfigMapping().set_global(float_qparams_weight_only_qconfig_4bit)
config = get_fbgemm_backend_config()
model = nn.Sequential(nn.Embedding(1, 1))
for p in model.parameters():
    p.fill_(1.0)
model.eval()
expected = tuple(model(x).shape)
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = tuple(lowered(x).shape)
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES numerics: the shape" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
