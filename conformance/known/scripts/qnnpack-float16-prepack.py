"""convert_fx raises RuntimeError: qnnpack/F.linear+F.relu/dynamic-float16/ptq/default/exact@qnnpack
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, float16_dynamic_qconfig
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty((1, 1)))
    def forward(self, x):
        return nn.functional.linear(x, self.weight)

x = torch.zeros((1, 1))
mapping = QConfigMapping().set_global(float16_dynamic_qconfig)
config = get_qnnpack_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
expected = got = "no exception"
try:
    lowered = convert_fx(prepared, backend_config=config)
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES lowered: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
