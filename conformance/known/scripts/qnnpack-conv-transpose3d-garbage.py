"""wrong values: qnnpack/nn.ConvTranspose3d+nn.BatchNorm3d/static-quint8/ptq/256to128_1x1x1_k2_s2/trained@qnnpack
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.ConvTranspose3d(1, 1, 2)
        self.batchnorm3d = nn.BatchNorm3d(1)
    def forward(self, x):
        return self.batchnorm3d(self.op(x))

x = torch.zeros((1, 1, 1, 1, 1))
mapping = get_default_qconfig_mapping("qnnpack")
config = get_qnnpack_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(1.0)
model.eval()
expected = model(x)
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs().max() > 0.012  # 1.5 steps of the output
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
