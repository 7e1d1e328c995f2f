"""the lowered model ends the process: onednn/torch.add(nn.Conv2d,*)/static-quint8/ptq/broadcast/exact@onednn
Expected: a result, or an exception."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"
torch.set_grad_enabled(False)

class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Conv2d(16, 16, 3, padding=1)
    def forward(self, x, shift):
        return torch.add(self.op(x), shift)

x, shift = torch.randn(8, 16, 64, 64), torch.randn(1, 16, 1, 1)
config = get_onednn_backend_config()
prepared = prepare_fx(Shifted().eval(), get_default_qconfig_mapping("onednn"), (x, shift), backend_config=config)
prepared(x, shift)
lowered = convert_fx(prepared, backend_config=config)
print("expected: a result, or an exception")
print("dies here, or else prints CONFORMS", flush=True)
for _ in range(20):
    lowered(x, shift)
print("CONFORMS")
