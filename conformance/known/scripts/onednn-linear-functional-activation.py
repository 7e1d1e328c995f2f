"""the lowered model computes in float: onednn/F.linear+nn.LeakyReLU/static-quint8/ptq/saturates/exact@onednn
Expected: a quantized kernel for the whole pattern, and no operator on float tensors."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
from torch.utils._python_dispatch import TorchDispatchMode

torch.backends.quantized.engine = "onednn"

class Trace(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        got.append(f"{func} {[x.dtype for x in args if isinstance(x, torch.Tensor)]}")
        return func(*args, **(kwargs or {}))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty((1, 1)))
        self.bias = nn.Parameter(torch.empty((1,)))
        self.leakyrelu = nn.LeakyReLU(0.25)
    def forward(self, x):
        return self.leakyrelu(nn.functional.linear(x, self.weight, self.bias))

x = torch.zeros((1, 1))
mapping = get_default_qconfig_mapping("onednn")
config = get_onednn_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
expected, got = "no operator on float tensors", []
with Trace():
    lowered(x)
print(f"expected {expected}\ngot      {got}")
deviates = any("aten.addmm" in one and "float32" in one for one in got)
print("DEVIATES lowered: computes in float" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
