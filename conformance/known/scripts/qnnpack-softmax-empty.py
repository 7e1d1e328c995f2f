"""the lowered model ends the process: qnnpack/nn.Softmax/static-quint8/ptq/empty_vector/exact@qnnpack
Expected: a result, or an exception."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"
x = torch.zeros((0,))
mapping = get_default_qconfig_mapping("qnnpack")
config = get_qnnpack_backend_config()
model = nn.Sequential(nn.Softmax()).eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
print("expected: a result, or an exception")
print("dies here, or else prints CONFORMS", flush=True)
lowered(x)
print("CONFORMS")
