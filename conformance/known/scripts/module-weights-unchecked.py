"""a QConfig that violates the constraints is used: qnnpack/nn.Conv1d+F.relu/static-qint8/ptq/weight.quant_max_upper_bound/constraints@qnnpack
Expected: no part of the QConfig is used."""

import torch
from torch import nn
from torch.ao.quantization import MinMaxObserver, QConfig, QConfigMapping
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import prepare_fx

torch.backends.quantized.engine = "qnnpack"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Conv1d(1, 1, 1)
    def forward(self, x):
        return nn.functional.relu(self.op(x))

x = torch.zeros((1, 1, 1))
qconfig = QConfig(
    activation=MinMaxObserver.with_args(dtype=torch.qint8, eps=0.000244140625),
    weight=MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric, quant_min=-127,
        quant_max=128, eps=0.000244140625)
)
mapping = QConfigMapping().set_global(qconfig)
config = get_qnnpack_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
expected, got = [], [node.name for node in prepared.graph.nodes if 'activation_post_process' in node.name]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES observed: the QConfig is used" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
