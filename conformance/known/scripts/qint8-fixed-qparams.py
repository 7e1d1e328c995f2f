"""wrong values: qnnpack/nn.Tanh/static-qint8/ptq/in_network/typical@qnnpack
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, default_symmetric_qnnpack_qconfig
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.prelude = nn.Hardtanh(-8.0)
        self.op = nn.Tanh()
    def forward(self, x):
        return self.op(self.prelude(x))

x = torch.tensor([[[[-1.0]]], [[[1.0]]]])
mapping = QConfigMapping().set_global(default_symmetric_qnnpack_qconfig)
config = get_qnnpack_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), PrepareCustomConfig().set_output_quantized_indexes([0]),
    backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
y = lowered(x)
expected = (0.005970371, 0, torch.qint8)  # as observed
got = (round(y.q_scale(), 9), y.q_zero_point(), y.dtype)
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES numerics: scale, zero point or dtype of the output" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
