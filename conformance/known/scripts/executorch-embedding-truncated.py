"""executorch/F.embedding/weight-quint8/ptq/default/typical@executorch

numerics: 43 of 60 values differ, by up to 0.00528908: (4, 1) got 0.560900688 golden 0.566189766 | (4, 6) got 0.63494736 golden 0.640236437 | (4, 2) got -0.0949411243 golden -0.0896520764 | (4, 7) got 0.201245517 golden 0.206534564

ExecuTorch's quantized embedding truncates weights instead of rounding them
The decomposed quantize of an embedding adds its float zero point after rounding and truncates the sum; torch's own quantize rounds the sum. A third of the weights are one step off.
Upstream: unreported
"""

import copy
import math
import sys
import torch
import torch.nn.functional as F
import warnings
import zlib
import torch.ao.quantization.quantize_fx
from executorch.backends.xnnpack import xnnpack_preprocess
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch import Tensor, nn
from torch.ao.nn.quantized.reference.modules.utils import ReferenceQuantizedModule
from torch.ao.quantization import QConfigMapping, float_qparams_weight_only_qconfig
from torch.ao.quantization.backend_config import get_executorch_backend_config
from torch.ao.quantization.quantize_fx import _convert_to_reference_decomposed_fx, prepare_fx
from torch.fx import GraphModule, Node, Tracer
from torch.utils._pytree import tree_leaves
from typing import Any

torch.set_grad_enabled(False)
warnings.simplefilter("ignore")
found = []


QUANTIZE = "quantized_decomposed.quantize_per_"


DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor"


class Inliner(Tracer):
    """Traces through reference modules and their containers. Every other module stays a call."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not any(isinstance(part, ReferenceQuantizedModule) for part in m.modules())


def with_integer_weights(model: GraphModule) -> GraphModule:
    """Return a decomposed reference model whose quantized weights are integer buffers.

    Quantize calls of activations stay, and so do weights that the model does not quantize to integers.
    """
    flat = GraphModule(model, Inliner().trace(model))
    for node in [*flat.graph.nodes]:
        if QUANTIZE in str(node.target) and _is_constant(node.args[0]):
            _fold(flat, node)
    flat.graph.eliminate_dead_code()
    flat.delete_all_unused_submodules()
    flat.recompile()
    return flat


def _is_constant(argument: object) -> bool:
    return isinstance(argument, Node) and argument.op == "get_attr"


def _value(model: GraphModule, argument: Any) -> Any:
    """The parameter or buffer that an argument names, or else the argument itself."""
    if not _is_constant(argument):
        return argument
    owner, _, name = argument.target.rpartition(".")
    return getattr(model.get_submodule(owner), name)


def _fold(model: GraphModule, quantize: Node) -> None:
    """Replace a quantize call of a parameter by a buffer with the codes."""
    function: Any = quantize.target
    with torch.no_grad():
        codes = function(*(_value(model, argument) for argument in quantize.args))
    name = f"{quantize.name}_codes"
    model.register_buffer(name, codes)
    with model.graph.inserting_before(quantize):
        constant = model.graph.get_attr(name)
    for user in [*quantize.users]:
        if DEQUANTIZE in str(user.target):
            _set_scalar_qparams(model, user)
    quantize.replace_all_uses_with(constant)
    model.graph.erase_node(quantize)


def _set_scalar_qparams(model: GraphModule, dequantize: Node) -> None:
    """Pass per-tensor qparams as numbers. XNNPACK takes tensors for the qparams of dynamic quantization."""
    _, scale, zero_point, *rest = (_value(model, argument) for argument in dequantize.args)
    dequantize.target = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    dequantize.args = (dequantize.args[0], float(scale), int(zero_point), *rest)


def integers(key: str, count: int, low: int, high: int) -> Tensor:
    """Return int64 of shape (`count`,) in [`low`, `high`]. They depend on the arguments alone.

    The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) with
    the position as its counter and the key's CRC-32 as its seed. int64 arithmetic wraps in the same way on every platform,
    while torch's samplers differ between platforms.
    """
    z = (torch.arange(1, count + 1) + (zlib.crc32(key.encode()) << 24)) * -0x61C8864680B583EB
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return ((z ^ ((z >> 31) & 0x1FFFFFFFF)) & 0x7FFFFFFF) % (high - low + 1) + low


def normal(key: str, shape: tuple[int, ...], scale: float = 1.0) -> Tensor:
    """Return float32 of `shape`, approximately normal with mean 0 and standard deviation `scale`.

    Each is the sum of twelve uniform integers, whose variance is 1 in units of their range (Irwin-Hall distribution).
    """
    sums = integers(key, 12 * math.prod(shape), 0, 65535).reshape(-1, 12).sum(1) - 6 * 65535
    return (sums.double() / 65536 * scale).float().reshape(shape)


def fill_typical(model: nn.Module, key: str) -> None:
    """Set every parameter and buffer of `model` to values that are typical after training.

    Weights have a variance of 1 / fan-in, factors of norms are about 1, and biases and means are about 0.
    """
    norms = {name for name, m in model.named_modules() if hasattr(m, "eps")}
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            owner, _, leaf = name.rpartition(".")
            label, shape = f"{key}/{name}", tuple(tensor.shape)
            if leaf == "running_var":
                tensor.copy_(integers(label, tensor.numel(), 32, 96) / 64)
            elif leaf == "weight" and (owner in norms or tensor.dim() < 2):
                tensor.copy_(1 + normal(label, shape, 0.1))
            elif leaf == "running_mean" or leaf.startswith("bias"):
                tensor.copy_(normal(label, shape, 0.1))
            elif tensor.is_floating_point() and tensor.dim() > 1:
                tensor.copy_(normal(label, shape, math.prod(shape[1:]) ** -0.5))


class Program:
    """A model lowered to XNNPACK, loaded in the ExecuTorch runtime; its operators in float and those in integers."""

    def __init__(self, model, inputs):
        self.model, self.in_float, self.in_integers = model, [], []
        serialize = xnnpack_preprocess.serialize_xnnpack_binary

        def seen(graph, constants):
            values = [getattr(value.xvalue_union, "tensor_value", value.xvalue_union) for value in graph.xvalues]
            dtypes = {value.id_out: value.datatype.name for value in values}
            for node in graph.xnodes:
                taken = [dtypes.get(number) for name, number in vars(node.xnode_union).items() if name.startswith("input")]
                name = type(node.xnode_union).__name__
                if name != "XNNConvert" and any(str(dtype).startswith("xnn_datatype_q") for dtype in taken):
                    self.in_integers.append(name)
                elif name != "XNNConvert" and "xnn_datatype_fp32" in taken:
                    self.in_float.append(name)
            return serialize(graph, constants)

        xnnpack_preprocess.serialize_xnnpack_binary = seen
        exported = torch.export.export(model, inputs)
        edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        left = [str(node.target) for node in edge.exported_program().graph.nodes if "aten." in str(node.target)]
        self.in_float += [name for name in left if "embedding" not in name]
        fuses = any("embedding" in name for name in left)
        made = edge.to_executorch(ExecutorchBackendConfig(do_quant_fusion_and_const_prop=fuses))
        portable = [str(node.target) for node in made.exported_program().graph.nodes]
        self.in_integers += [name for name in portable if "quantized_decomposed.embedding" in name]
        self.program = Runtime.get().load_program(made.buffer)  # its method needs it alive
        self.method = self.program.load_method("forward")

    def __call__(self, *inputs):
        self.outputs = self.method.execute(inputs)
        return self.outputs

    def source(self, output):
        """The quantized tensor that the model dequantizes to give an output."""
        (last,) = [node for node in self.model.graph.nodes if node.op == "output"]
        nodes = tree_leaves(last.args[0])
        number = next(number for number, one in enumerate(self.outputs) if one is output)
        if "dequantize_per_tensor" not in str(nodes[number].target):
            return None
        _, scale, zero_point, _, _, dtype = nodes[number].args
        quantized = {torch.int8: torch.qint8, torch.uint8: torch.quint8}[dtype]
        return torch.quantize_per_tensor(output, scale, zero_point, quantized)


def deviates(check, what):
    found.append(check)
    print(f"DEVIATES {check}: {what}")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty((10, 12)))

    def forward(self, x):
        y = F.embedding(x, self.weight)
        return y


qconfig = float_qparams_weight_only_qconfig
mapping = QConfigMapping().set_global(qconfig)
backend_config = get_executorch_backend_config()
key = "F.embedding/weight-quint8/ptq/default/typical"  # what the data are a function of


def inputs():
    return (integers(key + "/x", 5, 0, 9).reshape((5,)),)


model = Model()
fill_typical(model, key)
model.eval()
prepared = prepare_fx(model, mapping, inputs(), backend_config=backend_config)
prepared(*inputs())
prepared.eval()
import executorch.kernels.quantized  # registers kernels
reference = _convert_to_reference_decomposed_fx(copy.deepcopy(prepared), backend_config=backend_config)
lowered = trace = Program(with_integer_weights(reference), inputs())
outputs = lowered(*inputs())
exactly = {(4, 1): 0.5661897659301758, (4, 6): 0.6402364373207092, (4, 2): -0.08965207636356354, (4, 7): 0.20653456449508667}  # what exact arithmetic gives, by index
values = outputs[0]
got = {index: values[index].item() for index in exactly}
if not all(abs(got[index] - value) <= abs(value) * 2**-20 for index, value in exactly.items()):
    deviates("numerics", f"{got} where exact arithmetic gives {exactly}")
if not found:
    print("CONFORMS")
sys.exit(bool(found))
