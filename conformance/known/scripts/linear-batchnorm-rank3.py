"""wrong values: fbgemm/nniqat.LinearBn1d/static-quint8/qat/rank3_square/exact@fbgemm
Expected: the result of the float model, but for rounding."""

import torch
import torch.ao.nn.intrinsic.qat as nniqat
from torch import nn
from torch.ao.nn.intrinsic.qat import freeze_bn_stats
from torch.ao.quantization import get_default_qat_qconfig, get_default_qat_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

torch.backends.quantized.engine = "fbgemm"
torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nniqat.LinearBn1d(1, 1, qconfig=qconfig)
    def forward(self, x):
        return self.op(x)

x = torch.zeros((2, 1, 1))
qconfig = get_default_qat_qconfig("fbgemm")
mapping = get_default_qat_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model()
for p in model.parameters():
    p.fill_(1.0)
prepared = prepare_qat_fx(model, mapping, (x,), backend_config=config)
prepared.apply(freeze_bn_stats)
prepared(x)
prepared.eval()
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)
expected = torch.tensor([[[1.992126]], [[1.992126]]])  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.allclose(got, expected)
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
