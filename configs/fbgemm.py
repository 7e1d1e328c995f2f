"""The config of fbgemm, which the x86 engine shares."""

from torch.ao.quantization.backend_config import BackendConfig

from . import dtypes, families


def get_fbgemm_backend_config() -> BackendConfig:
    """Return a new config of torch's fbgemm engine."""
    static = (dtypes.STATIC_QUINT8,)
    weighted = (dtypes.STATIC_QUINT8_WEIGHTED,)
    dynamic = (dtypes.DYNAMIC_QUINT8, dtypes.DYNAMIC_FLOAT16)
    weight_only = (dtypes.WEIGHT_ONLY_QUINT8, dtypes.WEIGHT_ONLY_QUINT4X2)
    return BackendConfig("fbgemm").set_backend_pattern_configs(
        [
            *families.convolutions(weighted),
            *families.linear((*weighted, *dynamic)),
            *families.binary(families.BINARY_OPS, static),
            *families.matmul(static),
            *families.cat(static),
            *families.default_ops(static),
            *families.fixed_qparams_ops(static),
            *families.share_qparams_ops(static),
            *families.tensor_info_ops(static),
            *families.batch_norm(static),
            *families.rnn(dynamic),
            *families.embedding(weight_only),
            *families.embedding_bag(weight_only),
        ]
    )
