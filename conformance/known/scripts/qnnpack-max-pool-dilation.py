"""wrong values: qnnpack/nn.MaxPool2d/static-quint8/ptq/2_stride_1_padding_1_dilation_2/exact@qnnpack
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.MaxPool2d(2, padding=1, dilation=2)
    def forward(self, x):
        return self.op(x)

x = torch.ones((2, 1, 1, 1))
mapping = get_default_qconfig_mapping("qnnpack")
config = get_qnnpack_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)
expected = torch.tensor([[[[0.003921569]]], [[[0.003921569]]]])  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.allclose(got, expected)
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
