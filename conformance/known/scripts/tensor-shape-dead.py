"""the entry of the pattern in the backend config has no effect: fbgemm/Tensor.shape/static-quint8/ptq/in_network/typical@fbgemm
Expected: without the entry, another model is observed or lowered."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import BackendConfig, get_fbgemm_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

torch.backends.quantized.engine = "fbgemm"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.prelude = nn.Hardtanh(-8.0)
    def forward(self, x):
        x = self.prelude(x)
        return x.reshape(x.shape[0], 140)

x = torch.zeros((1, 4, 7, 5))
mapping = get_default_qconfig_mapping("fbgemm")
config = get_fbgemm_backend_config()
texts = []
entries = [one for one in config.configs if one.pattern != 'shape']
assert len(entries) == len(config.configs) - 1
for config in (config, BackendConfig().set_backend_pattern_configs(entries)):
    prepared = prepare_fx(Model().eval(), mapping, (x,), backend_config=config)
    observed = str(prepared)
    prepared(x)
    texts.append(observed + str(convert_fx(prepared, backend_config=config)))
expected, got = texts
print(f"expected {expected}\ngot      {got}")
deviates = got == expected
print("DEVIATES matched: the same without the entry" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
