"""Fabricated audits: a network like MobileNet V3 of more than 100 layers, with everything that an audit can find."""

from collections.abc import Iterator
from dataclasses import replace

from conformance.results.audits import (
    Agreement,
    Arithmetic,
    Audit,
    Fault,
    Layer,
    Qparams,
    Reduction,
    Refusal,
    Stability,
)  # fmt: skip
from conformance.results.findings.layers import LayerRaises
from conformance.results.findings.stages import Crashes

KNOWN = {
    "x86-hardswish-in-float": "quantized.hardswish dequantizes its operand, applies the float operator and quantizes again.",
    "onednn-saturation": "Without VNNI the 8-bit kernels add pairs of products in 16 bits, which saturates.",
}
UPSTREAM = {"onednn-saturation": "pytorch/pytorch#103646"}
NOT_SUPPORTED = "no pattern of the config matches nn.LayerNorm with elementwise_affine=False"
SCRIPT = "import torch\n\nx = torch.randn(1, 3)\nprint('DEVIATES' if x.sum() > 0 else 'CONFORMS')\n"
NAME_ONLY = "the kernel dequantizes its operand and computes in float"


def fault_of(check: str, message: str, cause: str | None = None) -> Fault:
    """A fault with this message in its text."""
    crash = Crashes(check, message)
    return Fault(crash if check == "crashes" else LayerRaises(check, "execute", "RuntimeError", message), cause)


def conv(name: str, number: int, pattern: str = "nn.Conv2d+nn.BatchNorm2d+nn.ReLU", **changes: object) -> Layer:
    """A convolution whose kernel agrees but for a few ties."""
    total = 200_704 >> number // 9
    relu = "ReLU" in pattern
    layer = Layer(
        name, pattern, f"x86/{pattern}/static-quint8", Arithmetic.INTEGER,
        kernels=("quantized.conv2d_relu" if relu else "quantized.conv2d",),
        shape=(1, 64, 56, 56 >> number // 20), inputs=(f"quint8 0.0{number + 11}/0",),
        output=Qparams("quint8", 0.0123 + number / 1000, 0 if relu else 117),
        reference=Qparams("quint8", 0.0123 + number / 1000, 0 if relu else 117),
        weight=Qparams("qint8", 0.00231, 0, 64),
        agreement=Agreement(total, number % 5 * 3),
        local_db=None if number % 5 == 0 else 62.0 - number % 7, cumulative_db=58.0 - number / 4,
        float_db=None if number % 5 == 0 else 45.0 - number % 7,
        clipped=0.0003, codes_used=231, codes=256, latency=0.008,
        features={"groups": "1", "kernel_size": "(3, 3)", "memory_format": "channels_last"},
    )  # fmt: skip
    return replace(layer, **changes)  # type: ignore[arg-type]


def moving(name: str, pattern: str, arithmetic: Arithmetic, output: Qparams | None = None) -> Layer:
    kernels = (f"aten.{pattern.rpartition('.')[2]}",)
    return Layer(name, pattern, None, arithmetic, kernels=kernels, output=output, latency=0.0007)


def hardswish(name: str, number: int) -> Layer:
    """An activation that computes in float, as the ledger knows."""
    fault = fault_of("lowered", "quantized.hardswish computes in float", "x86-hardswish-in-float")
    faults = (fault,) if number % 4 == 0 else ()
    return conv(
        name, number, "nn.Hardswish", arithmetic=Arithmetic.NAME_ONLY, kernels=("quantized.hardswish",), reason=NAME_ONLY,
        weight=None, faults=faults, local_db=49.5,
    )  # fmt: skip


def block(number: int) -> Iterator[Layer]:
    """An inverted residual block: expansion, depthwise convolution, squeeze and excitation in part, projection, sum."""
    name = f"features.{number}.block"
    yield conv(f"{name}.0.0", 5 * number)
    yield conv(f"{name}.1.0", 5 * number + 1)
    yield hardswish(f"{name}.1.2", number)
    if number % 3 == 0:
        yield moving(f"{name}.2.dequantize_{number}", "Tensor.dequantize", Arithmetic.CONVERSION)
        yield Layer(
            f"{name}.2.norm", "nn.LayerNorm", None, Arithmetic.FLOAT, NOT_SUPPORTED, ("aten.native_layer_norm",),
            (1, 64, 56, 56), latency=0.021,
        )  # fmt: skip
        quantized = Qparams("quint8", 0.0312, 128)
        yield moving(f"{name}.2.quantize_{number}", "torch.quantize_per_tensor", Arithmetic.CONVERSION, quantized)
    yield conv(f"{name}.3.0", 5 * number + 2, "nn.Conv2d+nn.BatchNorm2d")
    yield conv(f"{name}.add_{number}", 5 * number + 3, "torch.add", kernels=("quantized.add",), weight=None)


def layers() -> Iterator[Layer]:
    yield moving(
        "quantize_per_tensor", "torch.quantize_per_tensor", Arithmetic.CONVERSION, Qparams("quint8", 0.0186, 114)
    )
    yield conv("features.0.0", 0)
    for number in range(1, 19):
        yield from block(number)
    yield moving("flatten", "torch.flatten", Arithmetic.VIEW)
    yield conv("classifier.0", 96, "nn.Linear", kernels=("quantized.linear",))
    yield Layer(
        "classifier.gelu", "nn.GELU", None, Arithmetic.FLOAT, "convert_fx raises for nn.GELU", ("aten.gelu",), latency=0.004,
    )  # fmt: skip
    yield moving("dequantize_1", "Tensor.dequantize", Arithmetic.CONVERSION)


FAULTY = {
    "features.5.block.1.0": {
        "faults": (fault_of("numerics", "6,200 of 200,704 codes differ (3.1%), by up to 14 steps"),),
        "agreement": Agreement(200_704, 1_204, 5_000, 1_200, 14),
        "local_db": 21.3,
        "float_db": 20.9,
    },
    "features.9.block.0.0": {
        "faults": (fault_of("numerics", "an accumulation saturates", "onednn-saturation"),),
        "agreement": Agreement(100_352, 120, 0, 31_000, 97),
        "local_db": 8.7,
        "float_db": 8.6,
    },
    "features.13.block.3.0": {
        "faults": (
            fault_of("crashes", "signal 11"),
            fault_of("stable", "another result with 4 threads", "onednn-saturation"),
        ),
        "agreement": None,
        "local_db": None,
        "float_db": None,
        "cumulative_db": None,
    },
    "features.7.block.0.0": {"codes_used": 11, "clipped": 0.042, "reference": Qparams("quint8", 0.05, 3)},
}
"""What is wrong with layers, or stands out, by name."""


def audit(engine: str = "x86") -> Audit:
    """An audit with new and known faults, a refusal, an instability and reductions."""
    return Audit(
        "torchvision.models:mobilenet_v3_large", engine, "fbgemm",
        layers=tuple(replace(layer, **FAULTY.get(layer.name, {})) for layer in layers()),  # type: ignore[arg-type]
        refusals=(Refusal("nn.GELU", "convert", "RuntimeError", "no qengine has it", ("classifier.gelu",)),),
        stability=(
            Stability("again", "pass"),
            Stability("threads", "fail", "3 outputs differ"), Stability("batch", "skip", "batch of 1"),
        ),
        reductions=(
            Reduction("features.5.block.1.0", "One convolution with the same weight and input differs.", script=SCRIPT),
            Reduction("features.9.block.0.0", "The convolution and the sum before it.", ("features.8.block.add_8",), SCRIPT),
            Reduction("features.13.block.3.0", "Without its network it does not end the process."),
        ),
        engine_db=22.9, reference_db=31.4, agreement_db=24.0, seconds=21.3,
    )  # fmt: skip


def clean(engine: str = "onednn") -> Audit:
    """An audit of the same network on an engine that is to blame for nothing."""
    kept = tuple(layer for layer in layers() if not layer.blamed and layer.arithmetic is not Arithmetic.FLOAT)
    return Audit(
        "torchvision.models:mobilenet_v3_large", engine, engine, kept, stability=(Stability("again", "pass"),),
        engine_db=31.2, reference_db=31.4, agreement_db=47.3, seconds=18.0,
    )  # fmt: skip


def failed(engine: str = "qnnpack") -> Audit:
    """An audit of a network that cannot be traced."""
    return Audit(
        "mypackage.models:branching", engine, engine,
        failure="torch.fx cannot trace it:\n  File \"/home/me/models.py\", line 31, in forward\n    if x.sum() > 0:",
        advice="Move the branch out of forward, or exclude its module: `--leaf mypackage.models.Gate`.",
    )  # fmt: skip


HOSTILE = "</script><script>document.title='owned'</script>\x1b[31m\u202e\n::error::名前{{ 49 }}"


def hostile() -> Audit:
    """An audit whose every text is hostile."""
    fault = fault_of(HOSTILE, HOSTILE, HOSTILE)
    layer = Layer(
        HOSTILE, HOSTILE, HOSTILE, Arithmetic.FLOAT, HOSTILE, (HOSTILE,), inputs=(HOSTILE,), output=Qparams(HOSTILE, 0.1, 3),
        faults=(fault, fault_of(HOSTILE, HOSTILE)), notes=(HOSTILE,), features={HOSTILE: HOSTILE},
    )  # fmt: skip
    moved = replace(layer, arithmetic=Arithmetic.CONVERSION, faults=(), notes=())
    return Audit(
        HOSTILE, HOSTILE, HOSTILE, (layer, moved), (Refusal(HOSTILE, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), HOSTILE),),
        (Stability(HOSTILE, "fail", HOSTILE),), (Reduction(HOSTILE, HOSTILE, (HOSTILE,), HOSTILE),),
    )  # fmt: skip
