"""What torchao's `quantize_` declares: configs, their parameters, and what each does to a module.

The sources are the classes of `torchao.quantization` and its table of workflows; `tests/configs/test_torchao.py` holds this
module against the installed version. Configs that need another device are here too: their claims are unavailable. Of
prototypes those are here that have kernels for the CPU.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import torch
from torch import nn

from .codes import Codes
from .workflows import Workflow, WorkflowConfig

MX = "torchao.prototype.mx_formats"
PROTOTYPES = dict.fromkeys(
    ("Int8DynamicActivationInt4WeightConfig", "PrototypeInt4WeightOnlyConfig"), "torchao.prototype.quantization.int4"
) | dict.fromkeys(
    ("MXDynamicActivationMXWeightConfig", "NVFP4DynamicActivationNVFP4WeightConfig", "NVFP4WeightOnlyConfig"), MX
)
"""The module of each prototype that runs on the CPU, or has kernels for it."""
NAMES = (
    dict.fromkeys(
        (
            "Float8DynamicActivationFloat8WeightConfig",
            "Float8DynamicActivationInt4WeightConfig",
            "Float8WeightOnlyConfig",
            "Int4WeightOnlyConfig",
            "Int8DynamicActivationInt8WeightConfig",
            "Int8DynamicActivationIntxWeightConfig",
            "Int8StaticActivationInt8WeightConfig",
            "Int8WeightOnlyConfig",
            "IntxWeightOnlyConfig",
            "MappingType",
            "PerAxis",
            "PerGroup",
            "PerRow",
            "PerTensor",
            "quantize_",
        ),
        "torchao.quantization",
    )
    | PROTOTYPES
    | {"KernelPreference": "torchao.quantization.quantize_.common.kernel_preference", "ScaleCalculationMode": MX}
)
"""The module of each name in the expressions."""
GROUP = 32
GRANULARITIES: dict[str | int, str] = {"row": "PerRow()", "tensor": "PerTensor()", GROUP: f"PerGroup({GROUP})"}
ALONG_CHANNELS: dict[str | int, str] = {GROUP: GRANULARITIES[GROUP], "row": "PerAxis(0)"}
INT8 = (-128, 127)
ALL_FORMS = (1, 4, 8)
"""The bits of the integers with which layers are called in every form."""
SEVEN_BITS = (-64, 63)
FLOOR = 2.0**-23
"""The least scale of Int8Tensor, whatever the dtype of what it scales."""
LEAST = 2.0**-126
"""The smallest normal number of float32."""
MAPPINGS = {"symmetric": "SYMMETRIC", "no_clipping": "SYMMETRIC_NO_CLIPPING_ERR", "asymmetric": "ASYMMETRIC"}
FLOAT8 = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
"""The greatest value of each float8 dtype (Micikevicius et al., "FP8 Formats for Deep Learning", 2022, table 1)."""
HQQ = 'intx_choose_qparams_algorithm="hqq_scale_only"'
MICROSCALED = FLOAT8 | {"float4_e2m1": 6.0}
"""The greatest code of each element of a block with a shared scale (Open Compute Project, "Microscaling Formats (MX)
Specification", version 1.0, 2023, section 5.3)."""
TORCHS = {"float4_e2m1": "float4_e2m1fn_x2"}
"""torch's names of dtypes that it stores in pairs."""
EMULATED = "kernel_preference=KernelPreference.EMULATED"
NVFP4 = Codes(-6, 6, "symmetric", 16, "float4_e2m1", "float32", 2.0**-6, "float8_e4m3fn")
MARKS = {
    "Float8DynamicActivationFloat8WeightConfig(granularity=PerRow())": "stable: H100, B200, Intel BMG",
    "Float8DynamicActivationFloat8WeightConfig(granularity=PerTensor())": "stable: Intel BMG",
    "Float8DynamicActivationInt4WeightConfig(*": "stable: H100",
    "Int4WeightOnlyConfig(*": "stable: A100 (bfloat16), Intel BMG (float16, bfloat16)",
    "Int8DynamicActivationInt8WeightConfig(*": "stable: A100, Intel BMG",
    "Int8WeightOnlyConfig(*": "stable: A100 (bfloat16)",
    "IntxWeightOnlyConfig(weight_dtype=torch.int[1-7],*": "stable: edge (bfloat16)",
}
"""torchao's own marks by globs over expressions, with the recommended hardware and the dtypes of inputs that stay in float:
"Workflows status by dtype + hardware" of its documentation (docs/source/workflows/index.md), column "quantized inference"."""
UNMARKED = "not in its table"
"""The mark of other expressions."""
MSLK, ACCELERATOR = "the package mslk, whose kernels are for accelerators", "an accelerator with kernels for it"
ARM = "torchao's kernels for Arm, or KleidiAI in torch"
BLACKWELL = "an accelerator of compute capability 10 or later"
OWN_KERNELS = "torchao built with USE_CPU_KERNELS=1"


def get_torchao_workflows() -> WorkflowConfig:
    """Return a new config with what `quantize_` declares."""
    entries = [
        *_int8_weights(),
        *_int8_products(),
        *_integers_of_some_bits(),
        *_beside_int8(),
        *_of_other_scales(),
        *_packed_int4(),
        *_float8_weights(),
        *_microscaled(),
        *_of_other_devices(),
    ]
    seen: set[str] = set()
    for entry in entries:  # a package takes as long as six programs: one for each config and kernel
        config = entry.source.partition("(")[0]
        entry.packaged = entry.compiled and (entry.kernel or config not in seen)
        seen |= {config} if entry.compiled else set()
    return WorkflowConfig("torchao", NAMES, entries, environment="torchao", exports=True)


def _int8_weights() -> Iterator[Workflow]:
    for blocks, granularity in GRANULARITIES.items():
        source = f"Int8WeightOnlyConfig(granularity={granularity})"
        weight = Codes(*INT8, blocks=blocks, scale="float32", floor=FLOOR)
        name, grouped = f"int8_weight_only-{blocks}", blocks == GROUP
        yield Workflow(nn.Linear, name, source, weight, dequantizes=grouped, kernel=not grouped)


def _int8_products() -> Iterator[Workflow]:
    name = "Int8DynamicActivationInt8WeightConfig"
    for blocks in ("row", "tensor"):
        for mapping in ("symmetric", "asymmetric"):
            options = f"granularity={GRANULARITIES[blocks]}, act_mapping_type=MappingType.{MAPPINGS[mapping]}"
            weight = Codes(*INT8, blocks=blocks, scale="float32", floor=FLOOR)
            inputs = Codes(*INT8, mapping, blocks, "", "float32", FLOOR)
            kernel = (blocks, mapping) == ("row", "symmetric")
            source = f"{name}({options})"
            yield Workflow(nn.Linear, f"int8_dynamic-{blocks}-{mapping}", source, weight, inputs, kernel=kernel)
    reduced = Codes(*SEVEN_BITS, scale="float32", floor=FLOOR)
    yield Workflow(nn.Linear, "int8_dynamic-reduced", f"{name}(reduce_range=True)", reduced, reduced)
    for mapping, zero_point in (("symmetric", 0), ("asymmetric", -3)):
        scale = "act_quant_scale=torch.tensor([[0.0625]])"
        zero = "" if not zero_point else f", act_quant_zero_point=torch.tensor([[{zero_point}]], dtype=torch.int8)"
        source = (
            f"Int8StaticActivationInt8WeightConfig({scale}{zero}, granularity=[PerTensor(), PerRow()], "
            f"act_mapping_type=MappingType.{MAPPINGS[mapping]})"
        )
        inputs = Codes(*INT8, mapping, "tensor", "", "float32", FLOOR)
        weight = Codes(*INT8, scale="float32", floor=FLOOR)
        yield Workflow(nn.Linear, f"int8_static-{mapping}", source, weight, inputs, fixed=(0.0625, zero_point))


def _integers_of_some_bits() -> Iterator[Workflow]:
    for pattern in (nn.Linear, nn.Conv2d, nn.Embedding):
        for bits in range(1, 9):
            for blocks, mapping in product(ALONG_CHANNELS, MAPPINGS):
                if bits == 1 and mapping == "no_clipping":
                    continue  # divides by the greatest code, which is 0
                granularity = ALONG_CHANNELS[blocks]
                options = f"granularity={granularity}, mapping_type=MappingType.{MAPPINGS[mapping]}"
                yield Workflow(
                    pattern,
                    f"intx{bits}_weight_only-{blocks}-{mapping}",
                    f"IntxWeightOnlyConfig(weight_dtype=torch.int{bits}, {options})",
                    _bits(bits, mapping, blocks),
                    dequantizes=True,
                    compiled=(bits, blocks, mapping) == (4, GROUP, "symmetric"),
                    codes_alone=bits not in ALL_FORMS,
                )


def _bits(bits: int, mapping: str, blocks: str | int) -> Codes:
    return Codes(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, mapping, blocks)


def _beside_int8() -> Iterator[Workflow]:
    for bits in range(1, 9):
        options = f"weight_granularity={GRANULARITIES[GROUP]}"
        yield Workflow(
            nn.Linear,
            f"int8_dynamic-intx{bits}",
            f"Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int{bits}, {options})",
            _bits(bits, "symmetric", GROUP),
            Codes(*INT8, "asymmetric"),
            dequantizes=True,
            compiled=bits == 4,
            codes_alone=bits not in ALL_FORMS,
        )


def _of_other_scales() -> Iterator[Workflow]:
    """Configs whose scales have a dtype of their own, or are those of the least squares."""
    for dtype, mapping in product(("float32", "bfloat16", "float16"), ("symmetric", "asymmetric")):
        grid = replace(_bits(4, mapping, GROUP), stored=dtype)
        options = f"granularity={GRANULARITIES[GROUP]}, mapping_type=MappingType.{MAPPINGS[mapping]}"
        yield Workflow(
            nn.Linear,
            f"intx4_weight_only-{mapping}-scale-{dtype}",
            f"IntxWeightOnlyConfig(weight_dtype=torch.int4, {options}, scale_dtype=torch.{dtype})",
            grid,
            dequantizes=True,
            compiled=(dtype, mapping) == ("bfloat16", "symmetric"),
        )
        options = f"weight_mapping_type=MappingType.{MAPPINGS[mapping]}, weight_scale_dtype=torch.{dtype}"
        yield Workflow(
            nn.Linear,
            f"int8_dynamic-intx4-{mapping}-scale-{dtype}",
            f"Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, {options})",
            grid,
            Codes(*INT8, "asymmetric"),
            dequantizes=True,
            compiled=False,
        )
    chosen: list[tuple[type[nn.Module], int, str | int]] = [(nn.Linear, 4, "row"), (nn.Embedding, 4, GROUP)]
    chosen += [(nn.Linear, bits, GROUP) for bits in range(2, 9)]  # one bit has no positive code
    for pattern, bits, blocks in chosen:
        granularity = ALONG_CHANNELS[blocks]
        yield Workflow(
            pattern,
            f"intx{bits}_weight_only-{blocks}-hqq",
            f"IntxWeightOnlyConfig(weight_dtype=torch.int{bits}, granularity={granularity}, {HQQ})",
            _least_squares(bits, blocks),
            dequantizes=True,
            compiled=False,
            codes_alone=bits not in ALL_FORMS,
        )
    yield Workflow(
        nn.Linear,
        "int8_dynamic-intx4-hqq",
        f"Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, {HQQ})",
        _least_squares(4, GROUP),
        Codes(*INT8, "asymmetric"),
        dequantizes=True,
        compiled=False,
    )


def _least_squares(bits: int, blocks: str | int) -> Codes:
    return replace(_bits(bits, "least_squares", blocks), floor=torch.finfo(torch.float32).eps)


def _packed_int4() -> Iterator[Workflow]:
    for group in (32, 64, 128):
        yield Workflow(
            nn.Linear,
            f"int4_weight_only-opaque-{group}",
            f"PrototypeInt4WeightOnlyConfig(group_size={group}, set_inductor_config=False)",
            Codes(0, 15, "from_least", group, floor=1e-6),
            dequantizes=True,
            kernel=group == GROUP,
            packed=True,
        )
    for mapping in ("symmetric", "asymmetric"):
        options = f"act_mapping_type=MappingType.{MAPPINGS[mapping]}, set_inductor_config=False"
        yield Workflow(
            nn.Linear,
            f"int8_dynamic-int4-opaque-{mapping}",
            f"Int8DynamicActivationInt4WeightConfig({options})",
            Codes(0, 15, "asymmetric", GROUP),
            Codes(*INT8, mapping),
            needs=OWN_KERNELS,
            sized=False,
        )


def _float8_weights() -> Iterator[Workflow]:
    for dtype, greatest in FLOAT8.items():
        for blocks, granularity in GRANULARITIES.items():
            options = f"weight_dtype=torch.{dtype}, granularity={granularity}"
            weight = Codes(-greatest, greatest, blocks=blocks, dtype=dtype, scale="float32", floor=LEAST)
            name = f"{dtype}_weight_only-{blocks}"
            yield Workflow(nn.Linear, name, f"Float8WeightOnlyConfig({options})", weight, dequantizes=True)


def _microscaled() -> Iterator[Workflow]:
    """Blocks of small floats with scales that are powers of two (MX), or floats of 8 bits (NVFP4)."""
    for (dtype, greatest), mode in product(MICROSCALED.items(), ("floor", "rceil", "ceil", "even")):
        grid, torchs = Codes(-greatest, greatest, mode, GROUP, dtype), TORCHS.get(dtype, dtype)
        options = f"activation_dtype=torch.{torchs}, weight_dtype=torch.{torchs}, {EMULATED}"
        yield Workflow(
            nn.Linear,
            f"mx-{dtype}-{mode}",
            f"MXDynamicActivationMXWeightConfig({options}, scaling_mode=ScaleCalculationMode.{mode.upper()})",
            grid,
            grid,
            dequantizes=True,
            compiled=dtype == "float8_e4m3fn" and mode in ("rceil", "even"),
            dtypes=[torch.bfloat16],
        )
    for shared in (0.0, FLOAT8["float8_e4m3fn"]):
        yield Workflow(
            nn.Linear,
            f"nvfp4_weight_only-{'tensor' if shared else 'block'}",
            f"NVFP4WeightOnlyConfig(use_dynamic_per_tensor_scale={bool(shared)})",
            NVFP4 if not shared else replace(NVFP4, shared=shared),
            dequantizes=True,
            dtypes=[torch.float32, torch.bfloat16],
        )


def _of_other_devices() -> Iterator[Workflow]:
    int4 = Codes(-8, 7, "asymmetric", GROUP)
    for packing, needs in (
        ("plain", MSLK),
        ("preshuffled", MSLK),
        ("plain_int32", ACCELERATOR),
        ("tile_packed_to_4d", ACCELERATOR),
    ):
        source = f'Int4WeightOnlyConfig(group_size={GROUP}, int4_packing_format="{packing}")'
        yield Workflow(nn.Linear, f"int4_weight_only-{packing}", source, int4, needs=needs, dtypes=[torch.bfloat16])
    for packing in ("plain", "preshuffled"):
        source = f'Float8DynamicActivationInt4WeightConfig(int4_packing_format="{packing}")'
        name, dtypes = f"float8_dynamic-int4-{packing}", [torch.bfloat16]
        yield Workflow(nn.Linear, name, source, int4, needs=MSLK, sized=False, dtypes=dtypes)
    greatest = FLOAT8["float8_e4m3fn"]
    for blocks in ("row", "tensor"):
        source = f"Float8DynamicActivationFloat8WeightConfig(granularity={GRANULARITIES[blocks]})"
        grid = Codes(-greatest, greatest, blocks=blocks, dtype="float8_e4m3fn", scale="float32")
        yield Workflow(nn.Linear, f"float8_dynamic-{blocks}", source, grid, grid, needs=ACCELERATOR)
    mx = Codes(-greatest, greatest, "rceil", GROUP, "float8_e4m3fn")
    for name, source, grid in (
        ("mx-kernel", "MXDynamicActivationMXWeightConfig(kernel_preference=KernelPreference.AUTO)", mx),
        ("nvfp4_dynamic", "NVFP4DynamicActivationNVFP4WeightConfig(use_triton_kernel=False)", NVFP4),
    ):
        yield Workflow(nn.Linear, name, source, grid, grid, needs=BLACKWELL, sized=False, dtypes=[torch.bfloat16])
    for packing in ("opaque_aten_kleidiai", "opaque_torchao_auto", "opaque_torchao_kleidiai", "opaque_torchao_lowbit"):
        options = f'weight_dtype=torch.int4, weight_granularity={GRANULARITIES[GROUP]}, intx_packing_format="{packing}"'
        yield Workflow(
            nn.Linear,
            f"int8_dynamic-intx4-{packing}",
            f"Int8DynamicActivationIntxWeightConfig({options})",
            Codes(-8, 7, "symmetric", GROUP),
            Codes(*INT8, "asymmetric"),
            needs=ARM,
            dtypes=[torch.float32],
        )
