"""torch.load raises UnpicklingError: fbgemm/F.conv1d+F.relu/static-quint8/ptq/large/laws@fbgemm
Expected: no exception."""

import io

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty((1, 1, 1)))
        self.bias = nn.Parameter(torch.empty((1,)))
    def forward(self, x):
        return nn.functional.relu(nn.functional.conv1d(x, self.weight, self.bias, (1,), (1,), (1,), 1))

x = torch.zeros((1, 1, 1))
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
expected = got = "no exception"
try:
    torch.save(lowered.state_dict(), saved := io.BytesIO())
    saved.seek(0)
    torch.load(saved)
    lowered(x)
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES stable: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
