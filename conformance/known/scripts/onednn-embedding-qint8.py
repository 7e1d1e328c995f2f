"""convert_fx raises NotImplementedError: onednn/nn.Embedding/weight-qint8/ptq/default/exact@onednn
Expected: no exception."""

import torch
from torch import nn
from torch.ao.quantization import PerChannelMinMaxObserver, PlaceholderObserver, QConfig, QConfigMapping
from torch.ao.quantization.backend_config import get_onednn_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "onednn"
x = torch.zeros((1,), dtype=torch.int64)
qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=torch.float32),
    weight=PerChannelMinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_channel_affine_float_qparams,
        ch_axis=0),
)
mapping = QConfigMapping().set_global(qconfig)
config = get_onednn_backend_config()
model = nn.Sequential(nn.Embedding(1, 1)).eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
expected = got = "no exception"
try:
    lowered = convert_fx(prepared, backend_config=config)
except Exception as error:
    got = f"{type(error).__name__}: {error}"[:200]
print(f"expected {expected}\ngot      {got}")
deviates = got != expected
print("DEVIATES lowered: an exception" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
