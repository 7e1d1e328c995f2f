"""a quantized kernel computes in float: qnnpack/torch.matmul/static-qint8/ptq/tiny/exact@qnnpack
Expected: no dequantize or quantize inside of the kernel."""

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, default_symmetric_qnnpack_qconfig
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "qnnpack"

class Model(nn.Module):
    def forward(self, x, y):
        return torch.matmul(x, y)

x = torch.zeros((1, 1, 5))
y = torch.zeros((1, 5, 1))
mapping = QConfigMapping().set_global(default_symmetric_qnnpack_qconfig)
config = get_qnnpack_backend_config()
model = Model().eval()
prepared = prepare_fx(model, mapping, (x, y), backend_config=config)
prepared(x, y)
lowered = convert_fx(prepared, backend_config=config)
with torch.autograd.profiler.profile() as profile:
    lowered(x, y)
calls = [event for event in profile.function_events if event.cpu_parent]
got = {f"{event.cpu_parent.name} > {event.name}" for event in calls}
expected = "no quantized::matmul > aten::dequantize"
print(f"expected {expected}\ngot      {got}")
deviates = "quantized::matmul > aten::dequantize" in got
print("DEVIATES lowered: converts to float" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
