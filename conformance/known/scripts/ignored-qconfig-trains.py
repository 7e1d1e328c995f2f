"""a QConfig that is ignored for activations is used for the weight: qnnpack/nn.Conv1d+F.relu/static-qint8/qat/input.scale_min_lower_bound/constraints@qnnpack
Expected: no part of the QConfig is used."""

import torch
from torch import nn
from torch.ao.quantization import FakeQuantize, MinMaxObserver, QConfig, QConfigMapping
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import prepare_qat_fx

torch.backends.quantized.engine = "qnnpack"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Conv1d(1, 1, 1)
    def forward(self, x):
        return nn.functional.relu(self.op(x))

x = torch.zeros((1, 1, 1))
qconfig = QConfig(
    activation=FakeQuantize.with_args(observer=MinMaxObserver.with_args(dtype=torch.qint8, eps=0.00024414061044808477)),
    weight=FakeQuantize.with_args(observer=MinMaxObserver.with_args(dtype=torch.qint8,
        qscheme=torch.per_tensor_symmetric, eps=0.000244140625))
)
mapping = QConfigMapping().set_global(qconfig)
config = get_qnnpack_backend_config()
model = Model()
prepared = prepare_qat_fx(model, mapping, (x,), backend_config=config)
expected, got = [], [type(module).__name__ for module in prepared.modules() if hasattr(module, 'weight_fake_quant')]
print(f"expected {expected}\ngot      {got}")
deviates = got and not [node.name for node in prepared.graph.nodes if 'activation_post_process' in node.name]
print("DEVIATES observed: the QConfig is used" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
