"""wrong values: onednn/nn.ConvTranspose2d/static-quint8/ptq/positive/exact@onednn
Expected: the result of the float model, but for rounding."""

import torch
from torch import nn
from torch.ao.quantization import MinMaxObserver, QConfig, QConfigMapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.ConvTranspose2d(2, 3, 3)
    def forward(self, x):
        return self.op(x)

x = torch.ones((1, 2, 1, 1))
qconfig = QConfig(
    activation=MinMaxObserver,
    weight=MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
)
mapping = QConfigMapping().set_global(qconfig)
config = get_onednn_backend_config()
model = Model()
for p in model.parameters():
    p.copy_(torch.linspace(-1, 1, p.numel()).view_as(p))
model.eval()
expected = model(x)[0, 2, 1, 0]
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)[0, 2, 1, 0]
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs() > 0.023  # 1.5 steps of the output
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
