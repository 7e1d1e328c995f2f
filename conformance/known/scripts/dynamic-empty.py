"""the lowered model raises RuntimeError: fbgemm/nni.LinearBn1d/dynamic-quint8/ptq/batch0/exact@fbgemm
Expected: no exception."""

import torch
import torch.ao.nn.intrinsic as nni
from torch import nn
from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
x = torch.zeros((0, 1))
mapping = QConfigMapping().set_global(default_dynamic_qconfig)
config = get_fbgemm_backend_config()
model = nn.Sequential(nni.LinearBn1d(nn.Linear(1, 1), nn.BatchNorm1d(1))).eval()
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
