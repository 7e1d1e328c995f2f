"""the input violates scale_exact_match: fbgemm/F.hardsigmoid/static-quint8/ptq/input.scale_exact_match/constraints@fbgemm
Expected: with a QConfig that satisfies the constraints, so does every tensor."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import FixedQParamsObserver, MinMaxObserver, QConfig, QConfigMapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_to_reference_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.prelude = nn.Hardtanh(-8.0)
    def forward(self, x):
        return nn.functional.hardsigmoid(self.prelude(x))

x = torch.zeros((1, 1, 1, 1))
others = QConfig(activation=MinMaxObserver.with_args(dtype=torch.quint8, qscheme=torch.per_tensor_affine, quant_min=0,
    quant_max=127), weight=MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric,
    quant_min=-128, quant_max=127))
qconfig = QConfig(
    activation=FixedQParamsObserver.with_args(scale=0.00390625, zero_point=0, dtype=torch.quint8),
    weight=MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
)
mapping = QConfigMapping().set_global(others).set_object_type(F.hardsigmoid, qconfig)
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
reference = convert_to_reference_fx(prepared, backend_config=config)
*_, inner, outer = [n for n in reference.graph.nodes if n.target is torch.quantize_per_tensor]
got = [reference.get_buffer(inner.args[1].target).item()]
expected = "exactly 0.00390625"
print(f"expected {expected}\ngot      {got}")
deviates = any(value != 0.00390625 for value in got)
print("DEVIATES constraints: scale_exact_match" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
