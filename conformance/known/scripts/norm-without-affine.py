"""prepare raises AssertionError: fbgemm/nn.Conv1d+nn.BatchNorm1d+F.relu/static-quint8/qat/norm_no_affine/pairs@fbgemm
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qat_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import prepare_qat_fx

torch.backends.quantized.engine = "fbgemm"
x = torch.zeros((1, 1, 1))
mapping = get_default_qat_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = nn.Sequential(nn.Conv1d(1, 1, 1), nn.BatchNorm1d(1, affine=False))
expected = got = "no exception"
try:
    prepared = prepare_qat_fx(model, mapping, (x,), backend_config=config)
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES lowered: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
