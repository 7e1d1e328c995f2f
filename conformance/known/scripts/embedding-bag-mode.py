"""wrong values: fbgemm/nn.EmbeddingBag/weight-quint8/ptq/mean/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, float_qparams_weight_only_qconfig
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.EmbeddingBag(1, 1)
    def forward(self, x, offsets):
        return self.op(x, offsets)

x = torch.zeros((2,), dtype=torch.int64)
offsets = torch.zeros((1,), dtype=torch.int64)
mapping = QConfigMapping().set_global(float_qparams_weight_only_qconfig)
config = get_fbgemm_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(1.0)
model.eval()
prepared = prepare_fx(model, mapping, (x, offsets), backend_config=config)
prepared(x, offsets)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x, offsets)
expected = torch.tensor([[1.0]])  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.allclose(got, expected)
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
