"""prepare raises AttributeError: onednn/nn.ReLU(operator.add(*,nn.BatchNorm2d(nn.Conv2d)))/static-quint8/ptq/scalar/exact@onednn
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import prepare_fx

torch.backends.quantized.engine = "onednn"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Conv2d(1, 1, 1)
    def forward(self, x):
        return 0.5 + self.op(x)

x = torch.zeros((1, 1, 1, 1))
mapping = get_default_qconfig_mapping("onednn")
config = get_onednn_backend_config()
model = Model().eval()
expected = got = "no exception"
try:
    prepared = prepare_fx(model, mapping, (x,), backend_config=config)
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES observed: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
