"""wrong values: onednn/nniqat.LinearBn1d/dynamic-quint8/qat/no_bias/exact@onednn
Expected: the result of the float model, but for rounding."""

import torch
import torch.ao.nn.intrinsic.qat as nniqat
from torch import nn
from torch.ao.nn.intrinsic.qat import freeze_bn_stats
from torch.ao.quantization import QConfigMapping, default_dynamic_qat_qconfig
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

torch.backends.quantized.engine = "onednn"
torch.set_grad_enabled(False)
x = torch.zeros((2, 1))
qconfig = default_dynamic_qat_qconfig
mapping = QConfigMapping().set_global(qconfig)
config = get_onednn_backend_config()
model = nn.Sequential(nniqat.LinearBn1d(1, 1, qconfig=qconfig))
for p in model.parameters():
    p.fill_(1.0)
prepared = prepare_qat_fx(model, mapping, (x,), backend_config=config)
prepared.apply(freeze_bn_stats)
prepared(x)
prepared.eval()
lowered = convert_fx(prepared, backend_config=config)
got = lowered(x)
expected = torch.tensor([[1.999995], [1.999995]])  # exact arithmetic
print(f"expected {expected}\ngot      {got}")
deviates = not torch.allclose(got, expected)
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
