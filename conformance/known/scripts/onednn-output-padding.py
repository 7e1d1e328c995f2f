"""convert_fx raises RuntimeError: onednn/F.conv_transpose1d/static-quint8/ptq/channels_16x32+stride_2+padding_3+output_padding_1+dilation_3+short+unbatched+huge+strided/pairs@onednn
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty((4, 32, 1)))
        self.bias = nn.Parameter(torch.empty((128,)))
    def forward(self, x):
        return nn.functional.conv_transpose1d(x, self.weight, self.bias, (2,), (1,), (1,), 4, (1,))

x = torch.zeros((4, 1))
mapping = get_default_qconfig_mapping("onednn")
config = get_onednn_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
expected = got = "no exception"
try:
    lowered = convert_fx(prepared, backend_config=config)
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES lowered: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
