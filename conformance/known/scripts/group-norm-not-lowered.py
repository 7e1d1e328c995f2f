"""the lowered model computes in float: fbgemm/F.group_norm/static-quint8/ptq/default/typical@fbgemm
Expected: a quantized kernel for the whole pattern, and no operator on float tensors."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
from torch.utils._python_dispatch import TorchDispatchMode

torch.backends.quantized.engine = "fbgemm"

class Trace(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        got.append(f"{func} {[x.dtype for x in args if isinstance(x, torch.Tensor)]}")
        return func(*args, **(kwargs or {}))

class Model(nn.Module):
    def forward(self, x):
        return nn.functional.group_norm(x, 1)

x = torch.zeros((2, 1, 1, 1))
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
expected, got = "no operator on float tensors", []
with Trace():
    lowered(x)
print(f"expected {expected}\ngot      {got}")
deviates = any("aten.native_group_norm" in one and "float32" in one for one in got)
print("DEVIATES lowered: computes in float" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
