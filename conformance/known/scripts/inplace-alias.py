"""far from the float model: onednn/F.hardtanh_/static-quint8/ptq/reused/exact@onednn
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"

class Model(nn.Module):
    def forward(self, x):
        y = nn.functional.hardtanh_(x)
        return x

x = torch.tensor([[[[-8.0]]]])
mapping = get_default_qconfig_mapping("onednn")
config = get_onednn_backend_config()
model = Model().eval()
expected = model(x.clone())
prepared = prepare_fx(model, mapping, (x.clone(),), backend_config=config)
prepared(x.clone())
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x.clone())
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs().max() > expected.abs().max() / 4
print("DEVIATES accuracy: not the result of the float model" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
