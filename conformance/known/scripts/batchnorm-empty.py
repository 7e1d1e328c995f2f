"""wrong values: fbgemm/nn.BatchNorm2d+F.relu/static-quint8/ptq/batch0/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.BatchNorm2d(1)
    def forward(self, x):
        return nn.functional.relu(self.op(x))

x = torch.zeros((0, 1, 1, 1))
x_calibration = torch.tensor([[[[-4.0]]], [[[3.9375]]]])
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x_calibration,), PrepareCustomConfig().set_output_quantized_indexes([0]),
    backend_config=config)
prepared(x_calibration)
lowered = convert_fx(prepared, backend_config=config)
y = lowered(x)
expected = (0.030988643, 0, torch.quint8)  # as observed
got = (round(y.q_scale(), 9), y.q_zero_point(), y.dtype)
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES numerics: scale, zero point or dtype of the output" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
