"""the lowered model raises RuntimeError: fbgemm/nn.Embedding/weight-quint4x2/ptq/rank3/exact@fbgemm
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, float_qparams_weight_only_qconfig_4bit
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
x = torch.zeros((1, 1, 1), dtype=torch.int64)
mapping = QConfigMapping().set_global(float_qparams_weight_only_qconfig_4bit)
config = get_fbgemm_backend_config()
model = nn.Sequential(nn.Embedding(1, 1)).eval()
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
