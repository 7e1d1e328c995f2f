"""wrong values: fbgemm/nn.Conv2d/static-quint8/ptq/padding_reflect/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_to_reference_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Conv2d(1, 1, 1, padding=1, padding_mode='reflect')
    def forward(self, x):
        return self.op(x)

x = torch.ones((1, 1, 2, 2))
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(1.0)
model.eval()
expected = model(x)[0, 0, 2, 3]
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_to_reference_fx(prepared, backend_config=config)
got = lowered(x)[0, 0, 2, 3]
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs() > 0.024  # 1.5 steps of the output
print("DEVIATES reference: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
