"""a call depends on the scale of the call before: qnnpack/F.conv1d+F.relu/static-quint8/ptq/one_weight_per_channel/codes@qnnpack
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
        self.weight = nn.Parameter(torch.empty((1, 1, 1)))
        self.bias = nn.Parameter(torch.empty((1,)))
    def forward(self, x):
        return nn.functional.relu(nn.functional.conv1d(x, self.weight, self.bias, (1,), (0,), (1,), 1))

x = torch.tensor([[[3.53125]]])
mapping = get_default_qconfig_mapping("qnnpack")
config = get_qnnpack_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(0.5)
model.eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
lowered._input_scale_0.fill_(0.03125)
lowered._input_zero_point_0.fill_(128)
lowered._scale_1.fill_(0.019975490868091583)
lowered._zero_point_1.fill_(0)
lowered(x)
lowered._scale_1.fill_(0.005872644949704409)
lowered._zero_point_1.fill_(128)
got = lowered(x)[0, 0, 0]
expected = torch.tensor(0.7458259)  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.isclose(got, expected)
print("DEVIATES stable: the value" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
