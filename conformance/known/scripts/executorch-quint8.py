"""wrong values: executorch/F.hardtanh/static-quint8/ptq/default/exact@executorch
Expected: the result of the exported program."""

import torch
import executorch.kernels.quantized  # registers the operators
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch.ao.quantization.fx import _decomposed  # registers quantized_decomposed

QPARAMS = (1 / 255, 0, 0, 255, torch.uint8)

def quantized(x):
    codes = torch.ops.quantized_decomposed.quantize_per_tensor(x, *QPARAMS)
    return torch.ops.quantized_decomposed.dequantize_per_tensor(codes, *QPARAMS)

class Clamp(torch.nn.Module):
    def forward(self, x):
        return quantized(torch.nn.functional.hardtanh(quantized(x), 0.0, 1.0))

x = torch.linspace(0, 1, 6).view(1, 6)
program = torch.export.export(Clamp().eval(), (x,))
expected = program.module()(x)
buffer = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch().buffer
(got,) = Runtime.get().load_program(buffer).load_method("forward").execute((x,))
print(f"expected {expected}\ngot      {got}")
deviates = (got - expected).abs().max() > 0.02
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
