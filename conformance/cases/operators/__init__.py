"""The operator table: how to write every operator down. A new operator is one entry in one of the tables."""

from .elementwise import ELEMENTWISE
from .layers import LAYERS
from .networks import EXTENTS
from .shape import SHAPES
from .variant import Operand, Shape, Variant
from .weighted import WEIGHTED

OPERATORS: dict[str, list[Variant]] = {**WEIGHTED, **ELEMENTWISE, **SHAPES, **LAYERS}
"""Variants by the operator's name, as claims name it; the first one is the default."""

__all__ = ["EXTENTS", "LAYERS", "OPERATORS", "WEIGHTED", "Operand", "Shape", "Variant"]
