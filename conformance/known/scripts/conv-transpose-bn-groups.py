"""the observed model raises RuntimeError: fbgemm/nn.ConvTranspose1d+nn.BatchNorm1d/static-quint8/ptq/depthwise/exact@fbgemm
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import prepare_fx

torch.backends.quantized.engine = "fbgemm"
x = torch.zeros((1, 2, 1))
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = nn.Sequential(nn.ConvTranspose1d(2, 2, 2, groups=2), nn.BatchNorm1d(2)).eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
expected = got = "no exception"
try:
    prepared(x)
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES observed: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
