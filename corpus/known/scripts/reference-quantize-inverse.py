"""coremltools/nn.Conv2d+nn.Hardsigmoid/static-quint8/ptq/default/typical@reference

reference: the reference model's 7 of 896 codes differ (0.8%), by up to 1 steps: (0, 2, 0, 3) got 173 golden 172 exact 172.305198 | (0, 0, 0, 3) got 105 golden 104 exact 104.386252 | (0, 2, 0, 4) got 185 golden 184 exact 184.387795 | (0, 0, 0, 4) got 65 golden 64 exact 64.4732736
numerics: 7 of 896 codes differ (0.8%), by up to 1 steps: (0, 2, 0, 3) got 173 golden 172 exact 172.305198 | (0, 0, 0, 3) got 105 golden 104 exact 104.386252 | (0, 2, 0, 4) got 185 golden 184 exact 184.387795 | (0, 0, 0, 4) got 65 golden 64 exact 64.4732736
"""

import copy
import math
import sys
import torch
import warnings
import zlib
import torch.ao.quantization.quantize_fx
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_to_reference_fx, prepare_fx
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
        self.op = nn.Conv2d(4, 8, 3, padding=1)
        self.hardsigmoid = nn.Hardsigmoid()

    def forward(self, x):
        y = self.op(x)
        y = self.hardsigmoid(y)
        return y


mapping = get_default_qconfig_mapping("qnnpack")
import corpus.coremltools_config
backend_config = corpus.coremltools_config.CONFIG
key = "nn.Conv2d+nn.Hardsigmoid/static-quint8/ptq/default/typical"  # what the data are a function of


def inputs():
    return (normal(key + "/x", (2, 4, 8, 7)),)


model = Model()
fill_typical(model, key)
model.eval()
prepared = prepare_fx(model, mapping, inputs(), backend_config=backend_config)
prepared(*inputs())
prepared.eval()
reference = convert_to_reference_fx(copy.deepcopy(prepared), backend_config=backend_config)
given = inputs()
with Trace() as reference_trace:
    expected = tensors(reference(*given))
lowered = convert_fx(copy.deepcopy(prepared), backend_config=backend_config)
given = inputs()
with Trace() as trace:
    outputs = tensors(lowered(*given))
exactly = {(0, 2, 0, 3): 172, (0, 0, 0, 3): 104, (0, 2, 0, 4): 184, (0, 0, 0, 4): 64}  # what exact arithmetic gives, by index
values = reference_trace.source(expected[0]).int_repr()
got = {index: values[index].item() for index in exactly}
if not all(abs(got[index] - value) <= 0 for index, value in exactly.items()):
    deviates("reference", f"{got} where exact arithmetic gives {exactly}")
exactly = {(0, 2, 0, 3): 172, (0, 0, 0, 3): 104, (0, 2, 0, 4): 184, (0, 0, 0, 4): 64}  # what exact arithmetic gives, by index
values = trace.source(outputs[0]).int_repr()
got = {index: values[index].item() for index in exactly}
if not all(abs(got[index] - value) <= 0 for index, value in exactly.items()):
    deviates("numerics", f"{got} where exact arithmetic gives {exactly}")
if not found:
    print("CONFORMS")
sys.exit(bool(found))
