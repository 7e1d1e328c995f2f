"""wrong values: onednn/F.adaptive_avg_pool3d/static-quint8/ptq/output_size_uneven+positive+batch1+reused/pairs@onednn
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"

class Model(nn.Module):
    def forward(self, x):
        return nn.functional.adaptive_avg_pool3d(x, (1, 2, 1))

x = torch.tensor([[[[[-1.0]]], [[[1.0]]]]])
mapping = get_default_qconfig_mapping("onednn")
config = get_onednn_backend_config()
model = Model().eval()
expected = model(x)
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs().max() > 0.012  # 1.5 steps of the output
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
