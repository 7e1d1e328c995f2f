"""Names of patterns, as users write them. They are public: ids and the ledger are keyed by them."""

import operator
from functools import cache
from typing import Any

import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.backend_config import BackendPatternConfig
from torch.ao.quantization.utils import MatchAllNode

# A function may be in several namespaces: the first one that has it gives the name.
_FUNCTIONS = {"F": F, "torch": torch, "operator": operator}
_MODULES = {"nn": nn, "nni": nni, "nnqat": nnqat, "nniqat": nniqat}


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


def _operator_name(op: Any) -> str:
    if isinstance(op, str):
        return f"Tensor.{op}"
    return _names().get(op) or f"{op.__module__}.{op.__qualname__}"


def _nested_name(pattern: Any) -> str:
    if not isinstance(pattern, tuple):
        return _operator_name(pattern)
    op, *operands = pattern
    return f"{_operator_name(op)}({','.join(map(_nested_name, operands))})"


def pattern_name(pattern: Any) -> str:
    """Return `nn.Conv2d+nn.ReLU` for a sequence and `nn.ReLU(operator.add(nn.Conv2d,*))` for torch's nested format.

    A tuple is a sequence unless it holds a tuple or MatchAllNode; see `config_pattern` for the entries' own patterns.
    """
    if isinstance(pattern, tuple) and not any(isinstance(part, tuple) or part is MatchAllNode for part in pattern):
        return "+".join(map(_operator_name, pattern))
    return _nested_name(pattern)


def _sequence(nested: Any) -> tuple[Any, ...] | None:
    """Return the operators of a nested pattern in order of execution, or None if it branches or has a wildcard."""
    if not isinstance(nested, tuple):
        return None if nested is MatchAllNode else (nested,)
    op, *operands = nested
    inner = _sequence(operands[0]) if len(operands) == 1 else None
    return None if inner is None else (*inner, op)


def config_pattern(entry: BackendPatternConfig) -> Any:
    """Return the entry's pattern as a sequence of operators or, if it branches, in torch's nested format."""
    nested = entry._pattern_complex_format
    if nested is None:
        return entry.pattern
    sequence = _sequence(nested) or (nested,)
    return sequence if len(sequence) > 1 else nested
