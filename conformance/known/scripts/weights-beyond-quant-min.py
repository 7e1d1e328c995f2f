"""the weight violates quant_min_lower_bound: qnnpack/F.conv1d+F.relu/static-qint8/ptq/weight.quant_min_lower_bound/constraints@qnnpack
Expected: with a QConfig that satisfies the constraints, so does every tensor."""

import torch
from torch import nn
from torch.ao.quantization import MinMaxObserver, QConfig, QConfigMapping
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_to_reference_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty((1, 1, 2)))
        self.bias = nn.Parameter(torch.empty((1,)))
    def forward(self, x):
        return nn.functional.relu(nn.functional.conv1d(x, self.weight, self.bias, (1,), (1,)))

x = torch.zeros((1, 1, 1))
qconfig = QConfig(
    activation=MinMaxObserver.with_args(dtype=torch.qint8, eps=0.000244140625),
    weight=MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_affine, quant_min=-127, quant_max=127,
        eps=0.000244140625)
)
mapping = QConfigMapping().set_global(qconfig)
config = get_qnnpack_backend_config()
model = Model()
for p in model.parameters():
    p.copy_(torch.linspace(-1, 1, p.numel()).view_as(p))
model.eval()
for w in model.parameters():
    w.copy_(torch.where(w < 0, -0.28125, 0.84375))
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
reference = convert_to_reference_fx(prepared, backend_config=config)
interpreter = torch.fx.Interpreter(reference, garbage_collect_values=False)
interpreter.run(x)
calls = {n: value for n, value in interpreter.env.items() if n.target is torch.quantize_per_tensor}
weights = [value for n, value in calls.items() if n.args[0].op == "get_attr"]
got = [weight.int_repr().min().item() for weight in weights]
expected = "at least -127"
print(f"expected {expected}\ngot      {got}")
deviates = any(value < -127 for value in got)
print("DEVIATES constraints: quant_min_lower_bound" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
