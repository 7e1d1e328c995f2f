"""The operator tables: variants of every operator. A new operator is one entry in one of the tables."""

from .elementwise import ELEMENTWISE
from .layers import LAYERS
from .networks import EXTENTS
from .shape import SHAPES
from .variant import Operand, Shape, Variant
from .weighted import WEIGHTED

OPERATORS: dict[str, list[Variant]] = {**WEIGHTED, **ELEMENTWISE, **SHAPES, **LAYERS}
"""Variants by operator, named as in claims; the first one is the default variant."""

__all__ = ["EXTENTS", "LAYERS", "OPERATORS", "WEIGHTED", "Operand", "Shape", "Variant"]
