"""coremltools/F.conv1d+nn.Tanh/static-quint8/ptq/default/typical@reference

accuracy: SQNR 11.7 dB is below 24 dB
"""

import copy
import math
import sys
import torch
import torch.nn.functional as F
import warnings
import zlib
import torch.ao.quantization.quantize_fx
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import prepare_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

torch.set_grad_enabled(False)
import conformance.engines.reference
engine = conformance.engines.reference.ReferenceEngine()
scope = engine.scope()
scope.__enter__()  # until the process ends
def convert_fx(prepared, backend_config):
    return engine.compile(engine.convert(prepared, backend_config), inputs())
warnings.simplefilter("ignore")
found = []


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
            elif leaf.endswith("weight") and (owner in norms or tensor.dim() < 2):
                tensor.copy_(1 + normal(label, shape, 0.1))
            elif leaf == "running_mean" or leaf.startswith("bias"):
                tensor.copy_(normal(label, shape, 0.1))
            elif tensor.is_floating_point() and tensor.dim() > 1:
                tensor.copy_(normal(label, shape, math.prod(shape[1:]) ** -0.5))


def tensors(outputs):
    return [x for x in tree_leaves(outputs) if isinstance(x, torch.Tensor)]


class Trace(TorchDispatchMode):
    """Keeps every operator call: its name, the tensors it took, and what it gave."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.calls.append((f"{func.namespace}.{func.overloadpacket.__name__}", tensors([args, kwargs]), result))
        return result

    def source(self, tensor):
        """The quantized tensor of an output: itself, or the argument of the dequantize call that returned it, or None."""
        if tensor.is_quantized:
            return tensor
        made = [(name, taken) for name, taken, given in self.calls if given is tensor]
        name, taken = made[-1] if made else ("", [None])
        return taken[0] if name.startswith(("aten.quantize_per", "aten.dequantize")) else None


def deviates(check, what):
    found.append(check)
    print(f"DEVIATES {check}: {what}")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty((8, 4, 3)))
        self.bias = nn.Parameter(torch.empty((8,)))
        self.tanh = nn.Tanh()

    def forward(self, x):
        y = F.conv1d(x, self.weight, self.bias, (1,), (1,), (1,), 1)
        y = self.tanh(y)
        return y


mapping = get_default_qconfig_mapping("qnnpack")
import corpus.coremltools_config
backend_config = corpus.coremltools_config.CONFIG
key = "F.conv1d+nn.Tanh/static-quint8/ptq/default/typical"  # what the data are a function of


def inputs():
    return (normal(key + "/x", (2, 4, 12)),)


model = Model()
fill_typical(model, key)
model.eval()
float_model = copy.deepcopy(model).eval()
ideal = tensors(float_model.double()(*[x.double() if x.is_floating_point() else x for x in inputs()]))
prepared = prepare_fx(model, mapping, inputs(), backend_config=backend_config)
prepared(*inputs())
prepared.eval()
lowered = convert_fx(prepared, backend_config=backend_config)
given = inputs()
with Trace() as trace:
    outputs = tensors(lowered(*given))
signal = sum(float(y.double().square().sum()) for y in ideal)
noise = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(outputs, ideal))
sqnr = 10 * math.log10(signal / noise) if signal and noise else math.inf
if sqnr < 24:
    deviates("accuracy", f"SQNR {sqnr:.1f} dB against the float model")
if not found:
    print("CONFORMS")
sys.exit(bool(found))
