"""wrong values: onednn/torch.add(nn.Conv2d,*)/static-quint8/ptq/residual/exact@onednn
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"
torch.set_grad_enabled(False)

class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Conv2d(8, 8, 3, padding=1)
    def forward(self, x):
        return torch.add(self.op(x), x)

torch.manual_seed(0)
x = torch.randn(1, 8, 16, 16).contiguous(memory_format=torch.channels_last)
model = Residual().eval()
expected = model(x)
config = get_onednn_backend_config()
prepared = prepare_fx(model, get_default_qconfig_mapping("onednn"), (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)
error = (got - expected).abs().max() / lowered.op.scale
print(f"expected within 3 steps of the output\ngot      {error:.0f} steps")
deviates = error > 3
print("DEVIATES accuracy: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
