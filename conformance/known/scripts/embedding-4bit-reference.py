"""wrong values: fbgemm/nnqat.EmbeddingBag/weight-quint4x2/qat/default/typical@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
import torch.ao.nn.qat as nnqat
from torch import nn
from torch.ao.quantization import QConfigMapping, default_embedding_qat_qconfig_4bit
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_to_reference_fx, prepare_qat_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nnqat.EmbeddingBag(1, 2, qconfig=qconfig)
    def forward(self, x, offsets):
        return self.op(x, offsets)

x = torch.zeros((1,), dtype=torch.int64)
offsets = torch.zeros((1,), dtype=torch.int64)
qconfig = default_embedding_qat_qconfig_4bit
mapping = QConfigMapping().set_global(qconfig)
config = get_fbgemm_backend_config()
model = Model()
for p in model.parameters():
    p.copy_(torch.linspace(-1, 1, p.numel()).view_as(p))
prepared = prepare_qat_fx(model, mapping, (x, offsets), backend_config=config)
prepared(x, offsets)
prepared.eval()
lowered = convert_to_reference_fx(prepared, backend_config=config)
got = lowered(x, offsets)
expected = torch.tensor([[-1.0, 0.9995117]])  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.allclose(got, expected)
print("DEVIATES reference: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
