"""wrong values: fbgemm/operator.add+F.relu/static-quint8/ptq/scalar/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def forward(self, x):
        return nn.functional.relu(x + 0.5)

x = torch.zeros((1, 1, 1, 1))
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), PrepareCustomConfig().set_output_quantized_indexes([0]),
    backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
y = lowered(x)
expected = (0.0039350856, 0, torch.quint8)  # as observed
got = (round(y.q_scale(), 9), y.q_zero_point(), y.dtype)
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES numerics: scale, zero point or dtype of the output" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
