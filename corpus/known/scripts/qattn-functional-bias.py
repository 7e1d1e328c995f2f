"""qattn/F.linear+F.relu/dynamic-qint8/ptq/batch0/exact@reference

matched: without this claim in the config the observed and the lowered model are the same
observed: input x is not observed
reference: the reference model quantizes nothing; the reference model quantizes nothing with the scale 0.0078125 and zero point 0.0 of weight
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
from torch.ao.quantization import FakeQuantizeBase, MinMaxObserver, ObserverBase, PlaceholderObserver, QConfig, QConfigMapping
from torch.ao.quantization.backend_config import BackendConfig
from torch.ao.quantization.quantize_fx import convert_to_reference_fx, prepare_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing import Any

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


def grid(key: str, shape: tuple[int, ...], low: int, high: int, exponent: int) -> Tensor:
    """Return float32 of `shape`: integers in [`low`, `high`] times 2**`exponent`.

    The first element is the low end and the last is the high end, if there are two.
    """
    values = integers(key, math.prod(shape), low, high)
    if values.numel() > 1:
        values[0], values[-1] = low, high
    return (values * 2.0**exponent).float().reshape(shape)


def fill(model: nn.Module, key: str, levels: int) -> None:
    """Set every parameter and buffer of `model` to dyadic values, with weights within ±`levels` steps of 2**-7.

    Variances make sqrt(var + eps) a power of two, so that a batch norm folds into dyadic weights. The factor
    gamma / sqrt(var + eps) is between 1/4 and 2 and varies between channels.
    """
    norms = {name: m for name, m in model.named_modules() if hasattr(m, "eps")}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    with torch.no_grad():
        for name, tensor in tensors:
            owner, _, leaf = name.rpartition(".")
            label, shape = f"{key}/{name}", tuple(tensor.shape)
            if leaf == "running_var":
                eps = norms[owner].eps
                tensor.copy_(4.0 ** integers(label, tensor.numel(), -1 if eps < 0.25 else 0, 1).double() - eps)
            elif leaf == "running_mean":
                tensor.copy_(grid(label, shape, -8, 8, -4))
            elif leaf.endswith("weight") and (owner in norms or tensor.dim() < 2):
                tensor.copy_(grid(label, shape, 1, 1, 0) * 2.0 ** integers(label, tensor.numel(), -1, 0).reshape(shape))
            elif leaf.startswith("bias"):
                # the results of a norm are multiples of small powers of two, and half of them would be ties without an offset
                tensor.copy_(grid(label, shape, -32, 32, -4) + (2.0**-9 if owner in norms else 0.0))
            elif tensor.is_floating_point() and tensor.dim() > 1:
                tensor.copy_(grid(label, shape, -levels, levels, -7))
                flat = tensor.flatten(1)
                if flat.shape[1] > 1:  # both ends in every row make per-channel scales powers of two
                    flat[:, 0], flat[:, -1] = -levels * 2.0**-7, levels * 2.0**-7


def rounded_up(observer: Any, scale: Tensor, zero_point: Tensor) -> tuple[Tensor, Tensor]:
    """Round scales up to powers of two and fit affine zero points to them."""
    mantissa, exponent = torch.frexp(scale)
    exact = torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 0.5).int())
    if observer.min_val.numel() == 0 or not torch.isfinite(observer.min_val).all():
        return scale, zero_point  # nothing was observed
    low = torch.clamp(observer.min_val, max=0.0)
    if observer.qscheme == torch.per_channel_affine_float_qparams:
        return exact, -observer.min_val / exact
    if observer.qscheme in (torch.per_tensor_affine, torch.per_channel_affine):
        fitted = observer.quant_min - torch.round(low / exact).to(zero_point.dtype)
        zero_point = torch.clamp(fitted, observer.quant_min, observer.quant_max).reshape(zero_point.shape)
    return exact, zero_point


class PowerOfTwoObserver(MinMaxObserver):
    """A min-max observer whose scale is rounded up to a power of two."""

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return rounded_up(self, *super().calculate_qparams())


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


def observer(node):
    """The observer that a node of the prepared model calls, or None."""
    module = prepared.get_submodule(node.target) if node.op == "call_module" else None
    return module if isinstance(module, (ObserverBase, FakeQuantizeBase)) else None


def observers(*names):
    """What the users of these inputs are, as far as they are observers; None for another user."""
    users = [user for name in names for user in nodes[name].users]
    return [observer(user) for user in users if user.op != "output" and user.target is not getattr]


def scales(t):
    per_tensor = t.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
    return [t.q_scale()] if per_tensor else t.q_per_channel_scales().tolist()


def zero_points(t):
    per_tensor = t.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
    return [t.q_zero_point()] if per_tensor else t.q_per_channel_zero_points().tolist()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty((8, 16)))
        self.bias = nn.Parameter(torch.empty((8,)))

    def forward(self, x):
        y = F.linear(x, self.weight, self.bias)
        y = F.relu(y)
        return y


qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=torch.qint8, quant_min=-128, quant_max=127, is_dynamic=True),
    weight=PowerOfTwoObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric, quant_min=-128, quant_max=127),
)
mapping = QConfigMapping().set_global(qconfig)
import corpus.qattn_config
backend_config = corpus.qattn_config.CONFIG
key = "F.linear+F.relu/dynamic-qint8/ptq/batch0/exact"  # what the data are a function of


def calibration():
    return (grid(key + "/x", (4, 16), -128, 127, -4),)


def inputs():
    return (grid(key + "/x/batch0", (0, 16), -128, 127, -4),)


model = Model()
fill(model, key, 127)
model.eval()
prepared = prepare_fx(copy.deepcopy(model), mapping, calibration(), backend_config=backend_config)
prepared(*calibration())
prepared.eval()
reference = convert_to_reference_fx(copy.deepcopy(prepared), backend_config=backend_config)
given = inputs()
with Trace() as reference_trace:
    expected = tensors(reference(*given))
lowered = convert_fx(copy.deepcopy(prepared), backend_config=backend_config)
entries = [entry for entry in backend_config.configs if entry.pattern != (F.linear, F.relu)]
assert len(entries) == len(backend_config.configs) - 1
rest = BackendConfig().set_backend_pattern_configs(entries)
other = prepare_fx(copy.deepcopy(model), mapping, calibration(), backend_config=rest)
other(*calibration())
other.eval()
if str(other) == str(prepared) and str(convert_fx(other, backend_config=rest)) == str(lowered):
    print(lowered)
    deviates("matched", "without its entry in the config, the observed and the lowered model are the same")
print(prepared.graph)
nodes = {node.name: node for node in prepared.graph.nodes}
if None in (observers('x') or [None]):
    deviates("observed", 'input x is not observed')
print(reference)
if not any('quantize_per' in str(n.target) or n.target == 'to' for n in reference.graph.nodes):
    deviates("reference", 'the reference model quantizes nothing')
made = [given for name, _, given in reference_trace.calls if name.startswith("aten.quantize_per")]
if not any(scales(t)[:4] == [0.0078125] and zero_points(t)[:4] == [0.0] for t in made):
    deviates("reference", 'the reference model quantizes nothing with the scale 0.0078125 and zero point 0.0 of weight')
if not found:
    print("CONFORMS")
sys.exit(bool(found))
