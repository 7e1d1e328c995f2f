"""The operators: what the suite knows of each. A new operator is one record in one of the tables."""

from .arithmetic import ARITHMETIC
from .convolution import CONVOLUTIONS
from .elementwise import ELEMENTWISE
from .fused import FUSED, QAT, plain_of, wrapped
from .joining import JOINING
from .linear import LINEAR_LAYERS, LINEAR_RANKS
from .norms import NORMS
from .pooling import POOLING
from .record import EXTENTS, Operator
from .recurrent import RECURRENT
from .space import Factor, Point, Space
from .variant import Operand, Shape, Variant
from .views import VIEWS

TABLES = CONVOLUTIONS, LINEAR_LAYERS, ELEMENTWISE, ARITHMETIC, POOLING, VIEWS, JOINING, NORMS, RECURRENT

RECORDS: dict[str, Operator] = {record.name: record for table in TABLES for record in table}
"""Records by the name in claims. A fused or QAT module has that of the layer inside it."""

SPACES: dict[str, Space] = {name: record.space for name, record in RECORDS.items() if record.combined}
"""Option spaces by operator."""


def has_weights(operator: str) -> bool:
    """Whether an operator is a convolution or a linear layer, or a module that holds one."""
    layer = plain_of(operator)
    return layer in RECORDS and RECORDS[layer].weighted


NORMED_RANKS = [RECORDS["nn.Linear"].at(name, values) for name, values in LINEAR_RANKS.items()]
"""The variants of linear layers in other ranks that a batch norm behind them takes."""

RANKS_INSIDE = {"nni.LinearBn1d": ("rank3", "rank3_square"), "nniqat.LinearBn1d": ("rank3_square",)}
"""Those of them that the norm inside of a module takes."""


def _variants(operator: str) -> list[Variant]:
    """The fixed variants of an operator; of a fused or QAT module the core ones of its layer."""
    layer = plain_of(operator)
    if layer == operator:
        return RECORDS[operator].variants
    core = [variant for variant in RECORDS[layer].variants if variant.core]
    ranks = [variant for variant in NORMED_RANKS if variant.name in RANKS_INSIDE.get(operator, ())]
    return [wrapped(variant, operator) for variant in (*core, *ranks)]


OPERATORS: dict[str, list[Variant]] = {operator: _variants(operator) for operator in (*RECORDS, *FUSED, *QAT)}
"""Fixed variants by operator, named as in claims; the first one is the default variant."""

__all__ = [
    "EXTENTS",
    "NORMED_RANKS",
    "OPERATORS",
    "RECORDS",
    "SPACES",
    "Factor",
    "Operand",
    "Operator",
    "Point",
    "Shape",
    "Space",
    "Variant",
    "has_weights",
]
