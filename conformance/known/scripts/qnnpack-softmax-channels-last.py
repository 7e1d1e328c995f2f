"""channels_last raises IndexError: qnnpack/nn.Softmax/static-quint8/ptq/last_dimension/exact@qnnpack
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"
x = torch.zeros((1, 2, 1, 2))
mapping = get_default_qconfig_mapping("qnnpack")
config = get_qnnpack_backend_config()
model = nn.Sequential(nn.Softmax(dim=-1)).eval()
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
