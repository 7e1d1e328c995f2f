"""prepare raises TypeError: fbgemm/nn.Linear+F.relu/dynamic-float16/qat/default/exact@fbgemm
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import PlaceholderObserver, QConfig, QConfigMapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import prepare_qat_fx

torch.backends.quantized.engine = "fbgemm"
x = torch.zeros((1, 1))
qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=torch.float16, is_dynamic=True),
    weight=PlaceholderObserver.with_args(dtype=torch.float16)
)
mapping = QConfigMapping().set_global(qconfig)
config = get_fbgemm_backend_config()
model = nn.Sequential(nn.Linear(1, 1))
expected = got = "no exception"
try:
    prepared = prepare_qat_fx(model, mapping, (x,), backend_config=config)
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES observed: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
