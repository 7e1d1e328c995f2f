"""the lowered model raises RuntimeError: onednn/nn.GRU/dynamic-quint8/ptq/batch_first_empty/exact@onednn
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"
x = torch.zeros((0, 1, 1))
mapping = QConfigMapping().set_global(default_dynamic_qconfig)
config = get_onednn_backend_config()
model = nn.Sequential(nn.GRU(1, 1, batch_first=True)).eval()
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
