"""wrong values: fbgemm/nnqat.EmbeddingBag/weight-quint4x2/qat/default/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
import torch.ao.nn.qat as nnqat
from torch import nn
from torch.ao.quantization import QConfigMapping, default_embedding_qat_qconfig_4bit
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nnqat.EmbeddingBag(1, 1, qconfig=qconfig)
    def forward(self, x, offsets):
        return self.op(x, offsets)

x = torch.zeros((1,), dtype=torch.int64)
offsets = torch.zeros((1,), dtype=torch.int64)
qconfig = default_embedding_qat_qconfig_4bit
mapping = QConfigMapping().set_global(qconfig)
config = get_fbgemm_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(1.0)
expected = tuple(model(x, offsets).shape)
prepared = prepare_qat_fx(model, mapping, (x, offsets), backend_config=config)
prepared(x, offsets)
prepared.eval()
lowered = convert_fx(prepared, backend_config=config)
got = tuple(lowered(x, offsets).shape)
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES numerics: the shape" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
