"""a call writes to its inputs: onednn/torch.add(nn.BatchNorm2d(nn.Conv2d),*)/static-quint8/ptq/two_layers/exact@onednn
Expected: the inputs stay as they are."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

torch.backends.quantized.engine = "onednn"

class Writes(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
        before = [x.clone() for x in given]
        result = func(*args, **(kwargs or {}))
        got.extend(f"{func} writes to its tensor {i}" for i, x in enumerate(given) if not x.equal(before[i]))
        return result

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Conv2d(1, 1, 1)
        self.other = nn.Conv2d(1, 1, 1)
    def forward(self, x):
        return torch.add(self.op(x), self.other(x))

x = torch.zeros((1, 1, 1, 1))
mapping = get_default_qconfig_mapping("onednn")
config = get_onednn_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
expected, got = "no write", []
with Writes():
    lowered(x)
print(f"expected {expected}\ngot      {got}")
deviates = any("quantized.conv2d_add" in one for one in got)
print("DEVIATES stable: a kernel writes to its input" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
