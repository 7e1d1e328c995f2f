"""a quantized kernel computes in float: fbgemm/torch.cat/static-quint8/ptq/default/typical@fbgemm
Expected: no dequantize or quantize inside of the kernel."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def forward(self, x, y):
        return torch.cat([x, y])

x = torch.zeros((1, 2, 1, 2))
y = torch.zeros((1, 2, 1, 2))
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x, y), backend_config=config)
prepared(x, y)
lowered = convert_fx(prepared, backend_config=config)
with torch.autograd.profiler.profile() as profile:
    lowered(x, y)
calls = [event for event in profile.function_events if event.cpu_parent]
got = {f"{event.cpu_parent.name} > {event.name}" for event in calls}
expected = "no aten::cat > aten::dequantize"
print(f"expected {expected}\ngot      {got}")
deviates = "aten::cat > aten::dequantize" in got
print("DEVIATES lowered: converts to float" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
