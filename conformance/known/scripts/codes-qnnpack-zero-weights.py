"""wrong codes for certain scales and zero points: qnnpack/nn.Conv2d+nn.BatchNorm2d+F.relu/static-quint8/ptq/one_weight_per_channel/codes@qnnpack
Expected: the exact result, but for rounding, whatever the scales and zero points of input and output are."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Conv2d(1, 3, 1)
        self.batchnorm2d = nn.BatchNorm2d(3)
    def forward(self, x):
        return nn.functional.relu(self.batchnorm2d(self.op(x)))

x = torch.tensor([[[[-0.8046875]]]])
mapping = get_default_qconfig_mapping("qnnpack")
config = get_qnnpack_backend_config()
model = Model()
model.op.weight.copy_(torch.tensor([[[[0.0]]], [[[0.0]]], [[[0.0]]]]))
model.op.bias.copy_(torch.tensor([1.0, 1.0, 1.0]))
model.batchnorm2d.bias.copy_(torch.tensor([-1.9980469, -1.8730469, 1.3144531]))
model.eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
lowered.op_input_scale_0.fill_(0.0078125)
lowered.op_input_zero_point_0.fill_(128)
lowered.op.scale = 0.03125
lowered.op.zero_point = 1
got = lowered(x)[0, 2, 0, 0]
expected = torch.tensor(2.3125)  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.isclose(got, expected)
print("DEVIATES numerics: the value" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
