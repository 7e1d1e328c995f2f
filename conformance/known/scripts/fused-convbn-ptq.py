"""wrong values: qnnpack/nni.ConvBn2d/static-qint8/ptq/channels_16x32+padding_uneven+padding_mode_replicate/pairs@qnnpack
Expected: the result of the float model, but for rounding."""

import torch
import torch.ao.nn.intrinsic as nni
from torch import nn
from torch.ao.quantization import QConfigMapping, default_symmetric_qnnpack_qconfig
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nni.ConvBn2d(nn.Conv2d(1, 1, 1, padding=(0, 1), padding_mode='replicate'), nn.BatchNorm2d(1))
    def forward(self, x):
        return self.op(x)

x = torch.ones((1, 1, 1, 1))
mapping = QConfigMapping().set_global(default_symmetric_qnnpack_qconfig)
config = get_qnnpack_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(1.0)
model.eval()
expected = model(x)
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs().max() > 0.018  # 1.5 steps of the output
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
