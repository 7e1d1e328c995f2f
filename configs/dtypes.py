"""The dtype configs of the backends, each defined once."""

import torch
from torch.ao.quantization.backend_config import DTypeConfig, DTypeWithConstraints


def _symmetric_activation() -> DTypeWithConstraints:
    """A scale bounded from below: XNNPACK refuses requantization scales under a minimum, so torch bounds every scale."""
    return DTypeWithConstraints(dtype=torch.qint8, scale_min_lower_bound=2**-12)


def _symmetric_weight() -> DTypeWithConstraints:
    """A weight without code -128: XNNPACK's weights are symmetric, and 128 is not a code."""
    return DTypeWithConstraints(
        dtype=torch.qint8, quant_min_lower_bound=-127, quant_max_upper_bound=127, scale_min_lower_bound=2**-12
    )


STATIC_QUINT8 = DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)

STATIC_QUINT8_WEIGHTED = DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8, bias_dtype=torch.float
)

STATIC_QUINT8_FLOAT_WEIGHT = DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.float, bias_dtype=torch.float
)

STATIC_QINT8_SYMMETRIC = DTypeConfig(input_dtype=_symmetric_activation(), output_dtype=_symmetric_activation())

STATIC_QINT8_SYMMETRIC_WEIGHTED = DTypeConfig(
    input_dtype=_symmetric_activation(),
    output_dtype=_symmetric_activation(),
    weight_dtype=_symmetric_weight(),
    bias_dtype=torch.float,
)

STATIC_QINT8_SYMMETRIC_BIASED = DTypeConfig(
    input_dtype=_symmetric_activation(),
    output_dtype=_symmetric_activation(),
    weight_dtype=_symmetric_weight(),
    bias_dtype=torch.qint32,
)
"""The bias is quantized too, with the product of the scales of input and weight."""

STATIC_QINT8 = DTypeConfig(input_dtype=torch.qint8, output_dtype=torch.qint8)

STATIC_QINT8_BIASED = DTypeConfig(
    input_dtype=torch.qint8, output_dtype=torch.qint8, weight_dtype=torch.qint8, bias_dtype=torch.qint32
)

DYNAMIC_QUINT8 = DTypeConfig(
    input_dtype=torch.quint8,
    output_dtype=torch.float,
    weight_dtype=torch.qint8,
    bias_dtype=torch.float,
    is_dynamic=True,
)

DYNAMIC_QINT8_SYMMETRIC = DTypeConfig(
    input_dtype=_symmetric_activation(),
    output_dtype=torch.float,
    weight_dtype=_symmetric_weight(),
    bias_dtype=torch.float,
    is_dynamic=True,
)

DYNAMIC_FLOAT16 = DTypeConfig(
    input_dtype=torch.float16,
    output_dtype=torch.float,
    weight_dtype=torch.float16,
    bias_dtype=torch.float,
    is_dynamic=True,
)

WEIGHT_ONLY_QUINT8 = DTypeConfig(input_dtype=torch.float, output_dtype=torch.float, weight_dtype=torch.quint8)

WEIGHT_ONLY_QUINT4X2 = DTypeConfig(input_dtype=torch.float, output_dtype=torch.float, weight_dtype=torch.quint4x2)

WEIGHT_ONLY_QINT8 = DTypeConfig(input_dtype=torch.float, output_dtype=torch.float, weight_dtype=torch.qint8)


def _inductor(
    dtype: torch.dtype, *, weighted: bool = True, returns_float: bool = True, dynamic: bool = False
) -> DTypeConfig:
    """Scales bounded from below, as the observers of torchao's default configurations for inductor bound them."""
    activation, weight = (DTypeWithConstraints(dtype=one, scale_min_lower_bound=2**-12) for one in (dtype, torch.qint8))
    return DTypeConfig(
        input_dtype=activation,
        output_dtype=torch.float if returns_float else activation,
        weight_dtype=weight if weighted else None,
        bias_dtype=torch.float if weighted else None,
        is_dynamic=dynamic or None,
    )


STATIC_QUINT8_TO_FLOAT = _inductor(torch.quint8, weighted=False)
STATIC_QUINT8_WEIGHTED_TO_FLOAT = _inductor(torch.quint8)
STATIC_QUINT8_WEIGHTED_BOUNDED = _inductor(torch.quint8, returns_float=False)
DYNAMIC_QUINT8_BOUNDED = _inductor(torch.quint8, dynamic=True)

STATIC_QINT8_TO_FLOAT = _inductor(torch.qint8, weighted=False)
STATIC_QINT8_WEIGHTED_TO_FLOAT = _inductor(torch.qint8)
STATIC_QINT8_WEIGHTED_BOUNDED = _inductor(torch.qint8, returns_float=False)
DYNAMIC_QINT8_BOUNDED = _inductor(torch.qint8, dynamic=True)
