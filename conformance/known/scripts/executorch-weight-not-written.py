"""wrong values: xnnpack/F.conv2d/dynamic-qint8/ptq/unbatched/exact@executorch
Expected: the result of the exported program."""

import torch
import executorch.kernels.quantized  # registers the operators
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

x = torch.ones(4, 8, 8)  # an image without a batch dimension
model = torch.nn.Conv2d(4, 4, 3).eval()
quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_dynamic=True))
prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
prepared(x)
program = torch.export.export(convert_pt2e(prepared), (x,))
expected = program.module()(x)
buffer = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch().buffer
(got,) = Runtime.get().load_program(buffer).load_method("forward").execute((x,))
print(f"expected {expected.flatten()[:4]}\ngot      {got.flatten()[:4]}")
deviates = not (got - expected).abs().max() < 0.05
print("DEVIATES numerics: the values" if deviates else "CONFORMS")
raise SystemExit(bool(deviates))
