"""wrong values: fbgemm/nn.Linear+nn.BatchNorm1d/static-quint8/ptq/rank3/exact@fbgemm
Expected: preparation, which computes in float, changes nothing."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import prepare_fx

torch.set_grad_enabled(False)

model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
model[0].weight.copy_(torch.eye(4))
model[0].bias.zero_()
model[1].weight.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))  # the factors of dimension 1
x = torch.ones(1, 4, 4)
expected = model(x)
prepared = prepare_fx(model, get_default_qconfig_mapping("fbgemm"), (x,))
got = prepared(x)
print(f"expected {expected[0, :, 0]}\ngot      {got[0, :, 0]}")
deviates = not torch.allclose(got, expected)
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
