"""Names of patterns, as users write them. They are public: ids and the ledger are keyed by them."""

import importlib
import operator
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.backend_config import BackendPatternConfig
from torch.ao.quantization.backend_config.utils import _get_pattern_in_reversed_nested_tuple_format
from torch.ao.quantization.utils import MatchAllNode

# A function may be in several namespaces: the first one that has it gives the name.
_FUNCTIONS = {"F": F, "torch": torch, "operator": operator}
_MODULES = {"nn": nn, "nni": nni, "nnqat": nnqat, "nniqat": nniqat}
NAMESPACES: dict[str, Any] = {**_FUNCTIONS, **_MODULES}
"""The namespaces over which names and the sources of models are written."""


@cache
def _names() -> dict[Any, str]:
    """Return the names of all callables of the namespaces; `__name__` is not unique among functions."""
    names: dict[Any, str] = {MatchAllNode: "*"}
    for namespaces, classes in ((_FUNCTIONS, False), (_MODULES, True)):
        for prefix, namespace in namespaces.items():
            for name, value in vars(namespace).items():
                if callable(value) and isinstance(value, type) is classes and not name.startswith("_"):
                    names.setdefault(value, f"{prefix}.{name}")
    return names


def operator_name(op: Any) -> str:
    """Return the name of an operator, with that of its namespace or module."""
    if isinstance(op, str):
        return f"Tensor.{op}"
    if type(op).__hash__ is not None and op in _names():
        return _names()[op]
    if hasattr(op, "__module__") and hasattr(op, "__qualname__"):
        return f"{op.__module__}.{op.__qualname__}"
    return f"{type(op).__qualname__}()"  # no operator: a declaration may hold anything


@cache
def operator_named(name: str) -> tuple[Any, str]:
    """Return the operator that a pattern names, and the module to import for it; the text is empty for an operator of torch's
    namespaces. A method of tensors is returned as its name.

    Raises LookupError if nothing that can be imported has the name.
    """
    prefix, _, rest = name.partition(".")
    if prefix == "Tensor":
        return rest, ""
    namespace = NAMESPACES.get(prefix)
    if namespace is not None and hasattr(namespace, rest):
        return getattr(namespace, rest), ""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:end])
        try:
            return operator.attrgetter(".".join(parts[end:]))(importlib.import_module(module)), module
        except (ImportError, AttributeError):
            continue
    raise LookupError(f"{name} cannot be imported")


def _nested_name(pattern: Any) -> str:
    if not isinstance(pattern, tuple):
        return operator_name(pattern)
    op, *operands = pattern
    return f"{operator_name(op)}({','.join(map(_nested_name, operands))})"


def pattern_name(pattern: Any) -> str:
    """Return `nn.Conv2d+nn.ReLU` for a sequence and `nn.ReLU(operator.add(nn.Conv2d,*))` for torch's nested format.

    A tuple is a sequence unless it holds a tuple or MatchAllNode; see `config_pattern` for the entries' own patterns.
    """
    if isinstance(pattern, tuple) and not any(isinstance(part, tuple) or part is MatchAllNode for part in pattern):
        return "+".join(map(operator_name, pattern))
    return _nested_name(pattern)


def _sequence(nested: Any) -> tuple[Any, ...] | None:
    """Return the operators of a nested pattern in order of execution, or None if it branches or has a wildcard."""
    if not isinstance(nested, tuple):
        return None if nested is MatchAllNode else (nested,)
    op, *operands = nested
    inner = _sequence(operands[0]) if len(operands) == 1 else None
    return None if inner is None else (*inner, op)


def nested_pattern(entry: BackendPatternConfig) -> Any:
    """Return the entry's pattern in torch's nested format. Raises ValueError for a pattern that torch refuses."""
    return _get_pattern_in_reversed_nested_tuple_format(entry)


def config_pattern(entry: BackendPatternConfig) -> Any:
    """Return the entry's pattern as a sequence of operators or, if it branches, in torch's nested format.

    It may be written as a sequence, in the nested format, or as a sequence of patterns in the nested format:
    `((nn.BatchNorm1d, nn.Conv1d), nn.ReLU)`, as configs of torch 1 do. Raises ValueError for a pattern that torch refuses.
    """
    nested = nested_pattern(entry)
    sequence = _sequence(nested) or (nested,)
    return sequence if len(sequence) > 1 else nested


def operators(entry: BackendPatternConfig) -> tuple[Any, ...]:
    """Return the operators of an entry's pattern, in whatever format it was written, without wildcards."""
    complex_format = entry._pattern_complex_format
    return tuple(_flattened(entry.pattern if complex_format is None else complex_format))


def _flattened(pattern: Any) -> Iterator[Any]:
    if isinstance(pattern, tuple):
        for part in pattern:
            yield from _flattened(part)
    elif pattern is not MatchAllNode:
        yield pattern


def entry_name(entry: BackendPatternConfig) -> str:
    """Return the name of an entry's pattern, whatever it is."""
    try:
        return pattern_name(config_pattern(entry))
    except ValueError:
        return pattern_name(entry.pattern)
