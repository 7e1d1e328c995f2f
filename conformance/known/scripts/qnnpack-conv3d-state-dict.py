"""state_dict raises RuntimeError: qnnpack/nn.Conv3d+nn.BatchNorm3d+nn.ReLU/static-quint8/qat/default/typical@qnnpack
Expected: no exception."""

import io

import torch
from torch import nn
from torch.ao.nn.intrinsic.qat import freeze_bn_stats
from torch.ao.quantization import get_default_qat_qconfig_mapping
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

torch.backends.quantized.engine = "qnnpack"
x = torch.zeros((1, 1, 1, 1, 1))
mapping = get_default_qat_qconfig_mapping("qnnpack")
config = get_qnnpack_backend_config()
model = nn.Sequential(nn.Conv3d(1, 1, 1), nn.BatchNorm3d(1), nn.ReLU())
prepared = prepare_qat_fx(model, mapping, (x,), backend_config=config)
prepared.apply(freeze_bn_stats)
prepared(x)
prepared.eval()
lowered = convert_fx(prepared, backend_config=config)
expected = got = "no exception"
try:
    torch.save(lowered.state_dict(), io.BytesIO())
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES stable: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
