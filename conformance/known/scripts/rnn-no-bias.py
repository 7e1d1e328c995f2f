"""convert_fx raises KeyError: fbgemm/nn.GRU/dynamic-float16/ptq/drawn_2/pairs@fbgemm
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, float16_dynamic_qconfig
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.GRU(1, 1, bias=False)
    def forward(self, x, h):
        return self.op(x)

x = torch.zeros((1, 1, 1))
h = torch.zeros((1, 1, 1))
mapping = QConfigMapping().set_global(float16_dynamic_qconfig)
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x, h), backend_config=config)
prepared(x, h)
expected = got = "no exception"
try:
    lowered = convert_fx(prepared, backend_config=config)
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES lowered: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
