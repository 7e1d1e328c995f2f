"""Faults of the dtype configs of a config, and of each bound of their constraints."""

from collections.abc import Callable
from typing import Any

import torch
from torch.ao.quantization.backend_config import BackendConfig, DTypeConfig

from conformance.configs import dtypes

from .configs import DENSE, LINEAR, RELU, SYMMETRIC, Change, entry_of, fault, static
from .fault import Fault

FLOOR = 2.0**-12


def with_dtypes(name: str, rearranged: Callable[[list[DTypeConfig]], list[DTypeConfig]]) -> Change:
    """Replace the dtype configs of one entry."""

    def change(config: BackendConfig) -> BackendConfig:
        entry = entry_of(config, name)
        entry.dtype_configs = rearranged(entry.dtype_configs)
        return config

    return change


def with_dtype(name: str, place: int, part: str, **fields: Any) -> Change:
    """Change the constraints of one dtype of one dtype config."""

    def change(config: BackendConfig) -> BackendConfig:
        dtype_config = entry_of(config, name).dtype_configs[place]
        constrained = getattr(dtype_config, f"{part}_dtype_with_constraints")
        for field, value in fields.items():
            assert hasattr(constrained, field)
            setattr(constrained, field, value)
        return config

    return change


def flipped(config: DTypeConfig) -> DTypeConfig:
    config.is_dynamic = not config.is_dynamic
    return config


def ulp(value: float, towards: float) -> float:
    """The next float32. No scale lies between the two, because observers compute scales in float32."""
    return float(torch.nextafter(torch.tensor(value), torch.tensor(towards)))


DTYPES = [
    fault(
        "the first dtype config is dropped", "parity", "qnnpack", with_dtypes(LINEAR, lambda d: d[1:]), SYMMETRIC, DENSE
    ),
    fault(
        "a dynamic dtype config is dropped",
        "parity",
        "fbgemm",
        with_dtypes(LINEAR, lambda d: [dtypes for dtypes in d if not dtypes.is_dynamic]),
        "nn.Linear/dynamic-quint8/ptq/default/exact",
    ),
    fault("all dtype configs are dropped", "parity", "fbgemm", with_dtypes(LINEAR, lambda d: []), DENSE),
    fault(
        "an extra dtype config",
        "parity",
        "fbgemm",
        with_dtypes("nn.ReLU", lambda d: [*d, dtypes.STATIC_QINT8_SYMMETRIC]),
        RELU,
        static("nn.ReLU", dtype="qint8"),
    ),
    fault(
        "a dtype config that no kernel supports",
        "golden lowered parity",
        "fbgemm",
        with_dtypes("nn.Conv2d", lambda d: [*d, dtypes.DYNAMIC_QUINT8]),
        "nn.Conv2d/dynamic-quint8/ptq/default/exact",
    ),
    fault(
        "dtype configs are in reverse order",
        "parity",
        "qnnpack",
        with_dtypes(LINEAR, lambda d: d[::-1]),
        SYMMETRIC,
        DENSE,
    ),
    fault(
        "a static dtype config is dynamic",
        "golden parity",
        "fbgemm",
        with_dtypes(LINEAR, lambda d: [flipped(d[0]), *d[1:]]),
        DENSE,
        "nn.Linear/dynamic-quint8-2/ptq/default/exact",
        "nn.Linear/dynamic-quint8/ptq/default/exact",
    ),
    fault(
        "a dynamic dtype config is static",
        "golden observed parity",
        "fbgemm",
        with_dtypes(LINEAR, lambda d: [d[0], flipped(d[1]), *d[2:]]),
        "nn.Linear/static-quint8-2/ptq/default/exact",
        DENSE,
    ),
    fault(
        "the input has another dtype",
        "golden matched observed parity reference",
        "fbgemm",
        with_dtype(LINEAR, 0, "input", dtype=torch.qint8),
        DENSE,
        SYMMETRIC,
    ),
    fault(
        "the output has another dtype",
        "lowered matched numerics observed parity reference",
        "fbgemm",
        with_dtype(LINEAR, 0, "output", dtype=torch.qint8),
        DENSE,
    ),
    fault(
        "the weight has another dtype",
        "golden lowered parity",
        "fbgemm",
        with_dtype(LINEAR, 0, "weight", dtype=torch.quint8),
        DENSE,
    ),
    fault(
        "the weight has no dtype",
        "golden lowered parity reference",
        "fbgemm",
        with_dtype(LINEAR, 0, "weight", dtype=None),
        DENSE,
    ),
    fault(
        "the bias is quantized",
        "lowered parity reference",
        "fbgemm",
        with_dtypes(LINEAR, lambda d: [DTypeConfig(torch.quint8, torch.quint8, torch.qint8, torch.qint32), *d[1:]]),
        DENSE,
    ),
    fault(
        "a dynamic layer's output is quantized",
        "lowered matched observed parity reference",
        "fbgemm",
        with_dtype(LINEAR, 1, "output", dtype=torch.quint8),
        "nn.Linear/dynamic-quint8/ptq/default/exact",
    ),
    fault(
        "an embedding has 8 bits instead of 4",
        "golden parity",
        "fbgemm",
        with_dtype("nn.Embedding", 1, "weight", dtype=torch.quint8),
        "nn.Embedding/weight-quint4x2/ptq/default/exact",
        "nn.Embedding/weight-quint8/ptq/default/exact",
        "nn.Embedding/weight-quint8-2/ptq/default/exact",
    ),
]


def bound(
    name: str,
    caught: str,
    part: str,
    field: str,
    value: float | None,
    *globs: str,
    pattern: str = LINEAR,
    survives: str = "",
) -> Fault:
    """Change a bound of qnnpack's first dtype config, which is the symmetric one."""
    runs = globs or (SYMMETRIC, static(LINEAR, "tiny", "qint8"))
    change = with_dtype(pattern, 0, part, **{field: value})
    return fault(name, caught, "qnnpack", change, *runs, survives=survives)


FIXED = static("nn.Sigmoid"), static("nn.Sigmoid", "in_network")


def fixed(name: str, caught: str, part: str, field: str, value: float | None, survives: str = "") -> Fault:
    """Change the fixed qparams of sigmoid."""
    return fault(name, caught, "fbgemm", with_dtype("nn.Sigmoid", 0, part, **{field: value}), *FIXED, survives=survives)


BOUNDS = [
    bound(
        "the minimum scale of activations is an ulp up",
        "golden parity",
        "input",
        "scale_min_lower_bound",
        ulp(FLOOR, 1),
    ),
    bound(
        "the minimum scale of activations is an ulp down",
        "golden matched observed parity reference",
        "input",
        "scale_min_lower_bound",
        ulp(FLOOR, 0),
    ),
    bound(
        "the minimum scale of activations is dropped",
        "golden matched observed parity reference",
        "input",
        "scale_min_lower_bound",
        None,
    ),
    bound(
        "the minimum scale of the output is an ulp up",
        "matched numerics observed parity reference",
        "output",
        "scale_min_lower_bound",
        ulp(FLOOR, 1),
    ),
    bound("the minimum scale of the output is dropped", "parity", "output", "scale_min_lower_bound", None),
    bound(
        "the minimum scale of the output is 1",
        "matched numerics observed parity reference",
        "output",
        "scale_min_lower_bound",
        1.0,
    ),
    bound(
        "the minimum scale of weights is an ulp up", "golden parity", "weight", "scale_min_lower_bound", ulp(FLOOR, 1)
    ),
    bound("the minimum scale of weights is dropped", "golden parity", "weight", "scale_min_lower_bound", None),
    bound("activations have a maximum scale", "parity", "input", "scale_max_upper_bound", 2.0**-12),
    bound("the output has a maximum scale", "constraints parity", "output", "scale_max_upper_bound", 2.0**-12),
    bound("weights have a maximum scale", "constraints parity", "weight", "scale_max_upper_bound", 2.0**-12),
    bound("the quant_min of weights is one down", "golden parity", "weight", "quant_min_lower_bound", -128),
    bound("the quant_min of weights is one up", "golden parity", "weight", "quant_min_lower_bound", -126),
    bound("the quant_min of weights is dropped", "golden parity", "weight", "quant_min_lower_bound", None),
    bound("the quant_max of weights is one down", "golden parity", "weight", "quant_max_upper_bound", 126),
    bound("the quant_max of weights is one up", "parity", "weight", "quant_max_upper_bound", 128),
    bound("the quant_max of weights is dropped", "parity", "weight", "quant_max_upper_bound", None),
    bound("activations have a quant_min", "golden parity", "input", "quant_min_lower_bound", -127),
    bound("the output has a quant_min", "constraints parity", "output", "quant_min_lower_bound", -100),
    bound("the output has a quant_max", "parity", "output", "quant_max_upper_bound", 100),
    bound("the output has an exact zero point", "constraints parity", "output", "zero_point_exact_match", 3),
    fixed(
        "a fixed scale is an ulp up",
        "golden lowered matched observed parity reference",
        "input",
        "scale_exact_match",
        ulp(1 / 256, 1),
    ),
    fixed(
        "a fixed scale of the output is an ulp up",
        "lowered matched numerics observed parity reference",
        "output",
        "scale_exact_match",
        ulp(1 / 256, 1),
    ),
    # a config that fixes the output alone is one that torch enforces
    fixed("a fixed scale is dropped", "parity", "input", "scale_exact_match", None),
    fixed("a fixed scale of the output is dropped", "parity", "output", "scale_exact_match", None),
    fixed(
        "a fixed zero point is one up",
        "golden lowered matched observed parity reference",
        "input",
        "zero_point_exact_match",
        1,
    ),
    fixed(
        "a fixed zero point of the output is one up",
        "lowered matched numerics observed parity reference",
        "output",
        "zero_point_exact_match",
        1,
    ),
    fixed("a fixed zero point of the output is dropped", "parity", "output", "zero_point_exact_match", None),
    fixed("a fixed quant_max is one down", "golden parity", "input", "quant_max_upper_bound", 254),
    fixed(
        "a fixed quant_max of the output is one down",
        "lowered matched numerics observed parity reference",
        "output",
        "quant_max_upper_bound",
        254,
    ),
    fixed(
        "a fixed quant_min of the output is one up",
        "lowered matched numerics observed parity reference",
        "output",
        "quant_min_lower_bound",
        1,
    ),
    fixed("a fixed quant_min is dropped", "parity", "input", "quant_min_lower_bound", None),
]

FAULTS = [*DTYPES, *BOUNDS]
