"""Kinds of findings, one class each: what a check measured, from which sentences and scripts are rendered."""

from . import annotations, codes, constraints, layers, memory, relations, stability, stages, structure, values, weights
from .finding import KINDS, Finding, detail_of, from_json, text_of

__all__ = [
    "KINDS",
    "Finding",
    "annotations",
    "codes",
    "constraints",
    "detail_of",
    "from_json",
    "layers",
    "memory",
    "relations",
    "stability",
    "stages",
    "structure",
    "text_of",
    "values",
    "weights",
]
