"""the lowered model raises TypeError: fbgemm/nn.Embedding/weight-quint4x2/ptq/keyword/exact@fbgemm
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, float_qparams_weight_only_qconfig_4bit
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Embedding(1, 1)
    def forward(self, x):
        return self.op(input=x)

x = torch.zeros((1,), dtype=torch.int64)
mapping = QConfigMapping().set_global(float_qparams_weight_only_qconfig_4bit)
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
expected = got = "no exception"
try:
    lowered(x)
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES lowered: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
