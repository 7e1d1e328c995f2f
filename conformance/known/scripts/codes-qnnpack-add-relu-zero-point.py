"""certain scales and zero points raise: qnnpack/operator.add+F.relu/static-quint8/ptq/every_code_same_tensor/codes@qnnpack
Expected: the exact result, but for rounding, whatever the scales and zero points of input and output are."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"

class Model(nn.Module):
    def forward(self, x):
        return nn.functional.relu(x + x)

x = torch.tensor([[0.33333334]])
mapping = get_default_qconfig_mapping("qnnpack")
config = get_qnnpack_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
lowered._input_scale_0.fill_(0.3333333432674408)
lowered._input_zero_point_0.fill_(74)
lowered._scale_0.fill_(0.2366013079881668)
lowered._zero_point_0.fill_(255)
expected = got = "no exception"
try:
    lowered(x)
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES lowered: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
