"""a quantized kernel computes in float: fbgemm/nn.Softmax/static-quint8/ptq/in_network/exact@fbgemm
Expected: no dequantize or quantize inside of the kernel."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Softmax()
    def forward(self, x):
        return self.op(x)

x = torch.zeros((1, 1, 1, 1))
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x,), backend_config=config)
prepared(x)
lowered = convert_fx(prepared, backend_config=config)
with torch.autograd.profiler.profile() as profile:
    lowered(x)
calls = [event for event in profile.function_events if event.cpu_parent]
got = {f"{event.cpu_parent.name} > {event.name}" for event in calls}
expected = "no quantized::softmax > aten::dequantize"
print(f"expected {expected}\ngot      {got}")
deviates = "quantized::softmax > aten::dequantize" in got
print("DEVIATES lowered: converts to float" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
