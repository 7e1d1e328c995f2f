"""equal elements have unequal results: fbgemm/F.elu/static-quint8/ptq/every_code/codes@fbgemm
Expected: the exact result, but for rounding, whatever the scales and zero points of input and output are."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def forward(self, x):
        return nn.functional.elu(x)

x = torch.full((1, 65), 11.71875)
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
lowered._input_scale_0.fill_(0.1171875)
lowered._input_zero_point_0.fill_(128)
lowered._scale_0.fill_(0.0625)
lowered._zero_point_0.fill_(1)
got, expected = lowered(x).unique(), "one value"
print(f"expected {expected}\ngot      {got}")
deviates = len(got) > 1
print("DEVIATES stable: equal elements differ" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
