"""a state_dict round trip changes the output: qnnpack/nn.ELU/static-qint8/ptq/tiny/exact@qnnpack
Expected: both outputs are equal."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, default_symmetric_qnnpack_qconfig
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"
x = torch.tensor([[[[-1.0]]]])
mapping = QConfigMapping().set_global(default_symmetric_qnnpack_qconfig)
config = get_qnnpack_backend_config()
model = nn.Sequential(nn.ELU()).eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
expected = lowered(x)
model = nn.Sequential(nn.ELU()).eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
other = convert_fx(prepared, backend_config=config)
other.load_state_dict(lowered.state_dict())
got = other(x)
print(f"expected {expected}\ngot      {got}")
deviates = not torch.equal(got, expected)
print("DEVIATES stable: the outputs" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
