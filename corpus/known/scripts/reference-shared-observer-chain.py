"""tensorrt/F.adaptive_avg_pool1d/static-qint8/ptq/cat_kept/contexts@reference

numerics: 15 of 1280 codes differ (1.2%), by up to 1 steps: (30, 8, 0) got 2 golden 1 exact 1 | (10, 8, 0) got 0 golden -1 exact -1 | (32, 9, 0) got -4 golden -5 exact -5 | (0, 6, 0) got -2 golden -3 exact -3, where x is of shape (128, 5, 15) and w is of shape (128, 5, 1)
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
from torch.ao.quantization import MinMaxObserver, QConfig, QConfigMapping
from torch.ao.quantization.quantize_fx import prepare_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing import Any

torch.set_grad_enabled(False)
torch.set_num_threads(1)
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


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.after = nn.Hardtanh(-64.0, 64.0)

    def forward(self, x, w):
        y = F.adaptive_avg_pool1d(x, 1)
        y = self.after(y)
        y = torch.cat([w, y], 1)
        return y


qconfig = QConfig(
    activation=PowerOfTwoObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_affine, quant_min=-128, quant_max=127),
    weight=PowerOfTwoObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric, quant_min=-128, quant_max=127),
)
mapping = QConfigMapping().set_global(qconfig)
import torch.ao.quantization.backend_config.tensorrt
backend_config = torch.ao.quantization.backend_config.tensorrt.get_tensorrt_backend_config()
key = "F.adaptive_avg_pool1d/static-qint8/ptq/cat_kept/contexts"  # what the data are a function of


def calibration():
    return grid(key + "/x", (2, 4, 11), -128, 127, -4), grid(key + "/w", (2, 4, 1), -128, 127, -2)


def inputs():
    return grid(key + "/x/128x5x15", (128, 5, 15), -128, 127, -4), grid(key + "/w/128x5x1", (128, 5, 1), -128, 127, -2)


model = Model()
model.eval()
prepared = prepare_fx(model, mapping, calibration(), backend_config=backend_config)
prepared(*calibration())
prepared.eval()
lowered = convert_fx(copy.deepcopy(prepared), backend_config=backend_config)
given = inputs()
with Trace() as trace:
    outputs = tensors(lowered(*given))
exactly = {(30, 8, 0): 1, (10, 8, 0): -1, (32, 9, 0): -5, (0, 6, 0): -3}  # what exact arithmetic gives, by index
values = trace.source(outputs[0]).int_repr()
got = {index: values[index].item() for index in exactly}
if not all(abs(got[index] - value) <= 0 for index, value in exactly.items()):
    deviates("numerics", f"{got} where exact arithmetic gives {exactly}")
if not found:
    print("CONFORMS")
sys.exit(bool(found))
