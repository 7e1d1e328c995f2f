"""coremltools/nn.Embedding/weight-qint8/ptq/default/exact@reference

accuracy: SQNR 2.9 dB is below 20 dB
"""

import copy
import math
import sys
import torch
import warnings
import zlib
import torch.ao.quantization.quantize_fx
from torch import Tensor, nn
from torch.ao.quantization import PerChannelMinMaxObserver, PlaceholderObserver, QConfig, QConfigMapping
from torch.ao.quantization.quantize_fx import prepare_fx
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


class PowerOfTwoPerChannelObserver(PerChannelMinMaxObserver):
    """A per-channel min-max observer whose scales are rounded up to powers of two."""

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


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.Embedding(10, 12)

    def forward(self, x):
        y = self.op(x)
        return y


qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=torch.float32),
    weight=PowerOfTwoPerChannelObserver.with_args(dtype=torch.qint8, qscheme=torch.per_channel_affine_float_qparams, quant_min=-128, quant_max=127, ch_axis=0),
)
mapping = QConfigMapping().set_global(qconfig)
import corpus.coremltools_config
backend_config = corpus.coremltools_config.CONFIG
key = "nn.Embedding/weight-qint8/ptq/default/exact"  # what the data are a function of


def inputs():
    return (integers(key + "/x", 5, 0, 9).reshape((5,)),)


model = Model()
fill(model, key, 127)
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
if sqnr < 20:
    deviates("accuracy", f"SQNR {sqnr:.1f} dB against the float model")
if not found:
    print("CONFORMS")
sys.exit(bool(found))
