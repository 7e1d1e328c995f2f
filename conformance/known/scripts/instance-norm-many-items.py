"""wrong values: qnnpack/nn.InstanceNorm2d/static-qint8/ptq/many_items+eps_0.125+track_running_stats+tiny+channels_last/pairs@qnnpack
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, default_symmetric_qnnpack_qconfig
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.InstanceNorm2d(1, track_running_stats=True)
    def forward(self, x):
        return self.op(x)

x = torch.ones((1, 1, 1, 1))
mapping = QConfigMapping().set_global(default_symmetric_qnnpack_qconfig)
config = get_qnnpack_backend_config()
model = Model().eval()
expected = model(x)
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs().max() > 0.0059  # 1.5 steps of the output
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
