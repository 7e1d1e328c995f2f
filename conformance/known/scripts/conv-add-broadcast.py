"""the lowered model ends the process: onednn/nn.ReLU(operator.add(*,nn.BatchNorm2d(nn.Conv2d)))/static-quint8/ptq/broadcast/exact@onednn
Expected: a result, or an exception."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Conv2d(1, 3, 1, padding=1)
        self.batchnorm2d = nn.BatchNorm2d(3)
        self.relu = nn.ReLU()
    def forward(self, x, other):
        return self.relu(other + self.batchnorm2d(self.op(x)))

x = torch.zeros((1, 1, 1, 1))
other = torch.zeros((1, 1, 1, 1))
mapping = get_default_qconfig_mapping("onednn")
config = get_onednn_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x, other), backend_config=config)
prepared(x, other)
lowered = convert_fx(prepared, backend_config=config)
print("expected: a result, or an exception")
print("DEVIATES undefined: the process dies here", flush=True)
lowered(x, other)
raise SystemExit("it did not die this time")
