"""wrong values: fbgemm/nn.GRU/dynamic-quint8/ptq/default/typical@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_to_reference_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)
x = torch.tensor([[[-2.5249481], [-0.85048425]], [[0.82397974], [2.4984436]]])
mapping = QConfigMapping().set_global(default_dynamic_qconfig)
config = get_fbgemm_backend_config()
model = nn.Sequential(nn.GRU(1, 1))
for p in model.parameters():
    p.fill_(1.0)
model.eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_to_reference_fx(prepared, backend_config=config)
got = lowered(x)[0]
expected = torch.tensor([[[-0.51295155], [0.17323047]], [[-0.37898052], [0.18102531]]])  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.allclose(got, expected)
print("DEVIATES reference: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
