"""wrong codes for certain scales and zero points: fbgemm/operator.add+F.relu/static-quint8/ptq/every_code_scalar/codes@fbgemm
Expected: the exact result, but for rounding, whatever the scales and zero points of input and output are."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def forward(self, x):
        return nn.functional.relu(x + 0.5)

x = torch.tensor([[0.02336]])
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
lowered._input_scale_0.fill_(0.0007300000288523734)
lowered._input_zero_point_0.fill_(0)
got = lowered(x)[0, 0]
expected = torch.tensor(0.5220502)  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.isclose(got, expected)
print("DEVIATES numerics: the value" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
