"""wrong codes for certain scales and zero points: fbgemm/F.dropout/static-quint8/ptq/every_code/codes@fbgemm
Expected: the exact result, but for rounding, whatever the scales and zero points of input and output are."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, training=False)

x = torch.tensor([[0.0625]])
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), PrepareCustomConfig().set_output_quantized_indexes([0]),
    backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
lowered._input_scale_0.fill_(0.0625)
lowered._input_zero_point_0.fill_(128)
lowered._scale_0.fill_(0.0625)
lowered._zero_point_0.fill_(0)
y = lowered(x)
expected, got = (0.0625, 0), (round(y.q_scale(), 9), y.q_zero_point())
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES numerics: scale or zero point of the output" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
