"""far from the float model: qnnpack/nn.LSTM/dynamic-quint8/ptq/projection/exact@qnnpack
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"
torch.set_grad_enabled(False)
x = torch.zeros((1, 1, 1))
mapping = QConfigMapping().set_global(default_dynamic_qconfig)
config = get_qnnpack_backend_config()
model = nn.Sequential(nn.LSTM(1, 2, proj_size=1))
for p in model.parameters():
    p.fill_(1.0)
model.eval()
expected = tuple(model(x)[0].shape)
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = tuple(lowered(x)[0].shape)
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES accuracy: not the result of the float model" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
