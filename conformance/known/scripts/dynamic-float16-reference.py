"""wrong values: fbgemm/nn.LSTM/dynamic-float16/ptq/default/typical@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, float16_dynamic_qconfig
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_to_reference_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)
x = torch.tensor([[[-1.0], [-0.3333333]], [[0.3333333], [1.0]]])
mapping = QConfigMapping().set_global(float16_dynamic_qconfig)
config = get_fbgemm_backend_config()
model = nn.Sequential(nn.LSTM(1, 1))
for p in model.parameters():
    p.fill_(1.0)
model.eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_to_reference_fx(prepared, backend_config=config)
got = lowered(x)[0]
expected = torch.tensor([[[0.36960635], [0.5505463]], [[0.8395592], [0.9130576]]])  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.allclose(got, expected)
print("DEVIATES reference: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
