"""channels_last raises RuntimeError: fbgemm/Tensor.mean/static-quint8/ptq/spread_strided/exact@fbgemm
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))

x = torch.zeros((1, 2, 1, 1)).repeat_interleave(2, -1)[..., ::2]
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
expected = got = "no exception"
try:
    lowered(x.contiguous(memory_format=torch.channels_last))
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES stable: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
