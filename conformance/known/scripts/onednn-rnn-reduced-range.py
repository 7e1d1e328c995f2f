"""wrong values: onednn/nn.GRUCell/dynamic-quint8/ptq/default/exact@onednn
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"
torch.set_grad_enabled(False)
x = torch.tensor([[-8.0, 7.9375]])
mapping = QConfigMapping().set_global(default_dynamic_qconfig)
config = get_onednn_backend_config()
model = nn.Sequential(nn.GRUCell(2, 1))
for p in model.parameters():
    p.fill_(1.0)
model.eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)
expected = torch.tensor([[0.119351655]])  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.allclose(got, expected)
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
