"""Shortcuts that lowering takes through torch and ExecuTorch: the same programs, byte by byte, in a third of the time.

Lowering a model of one operator runs some forty passes, and most of their time goes to what does not depend on the model.
Each shortcut here replaces one such thing in the scope of a lowering and says what it is. tests/test_executorch.py lowers
with and without them and compares the programs.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch._export.utils
import torch.export.decomp_utils
import torch.export.exported_program
import torch.fx.traceback
from torch._subclasses.fake_impls import op_implementations_dict
from torch.fx import GraphModule
from torch.fx.graph import _PyTreeCodeGen

composite_operators = cache(torch._export.utils._collect_all_valid_cia_ops)
"""The operators that torch may decompose. Every decomposition, three a lowering, asks the dispatcher anew for all of them in
every namespace (a third of the time), because somebody may have registered another; in a lowering nobody does."""

_override = torch.export.exported_program._override_composite_implicit_decomp
_overridden: dict[tuple[Any, Any, int], tuple[dict[Any, Any], dict[Any, Any], Any]] = {}


@contextmanager
def override(decompositions: Mapping[Any, Any]) -> Iterator[None]:
    """Let operators decompose as told in this scope. torch's own registers twenty kernels for each of 1,700 operators, six
    times a lowering (a quarter); what they come to is the same every time, and is put in their place here at once."""
    before = {operator: operator.py_kernels for operator in decompositions}
    keys = {operator: (operator, _alike(how), id(before[operator])) for operator, how in decompositions.items()}
    new = {operator: how for operator, how in decompositions.items() if keys[operator] not in _overridden}
    with _override(new):
        for operator in new:  # the kernels before are kept for their address' sake
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


def _alike(decomposition: Any) -> Any:
    """The same for functions that do the same: torch makes anew the ones that decompose an operator in C++."""
    return decomposition.func.__code__ if isinstance(decomposition, partial) else decomposition


_recompile = GraphModule.recompile


def recompile(self: GraphModule) -> None:
    """Put off writing Python code for a graph until somebody calls or reads it: between passes nobody does (a fifth)."""
    codegen = self._graph._codegen
    if isinstance(codegen, _PyTreeCodeGen):
        self._in_spec, self._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
    self.__dict__.pop(CODE, None)
    type(self).forward = _compiled_when_called
    self._recompile_submodules()


def _compiled_when_called(self: GraphModule, *arguments: Any, **keywords: Any) -> Any:
    _recompile(self)
    return type(self).forward(self, *arguments, **keywords)


CODE = "_code_when_read"


def _code(self: GraphModule) -> str:
    if CODE not in self.__dict__:
        _recompile(self)
    return str(self.__dict__[CODE])


def _set_code(self: GraphModule, text: str) -> None:
    self.__dict__[CODE] = text


@contextmanager
def shortcuts() -> Iterator[None]:
    """Take all of them in this scope."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    with ExitStack() as scope:
        for module in (torch._export.utils, torch.export.exported_program, torch.export.decomp_utils):
            scope.enter_context(patch.object(module, "_collect_all_valid_cia_ops", composite_operators))
        scope.enter_context(patch.object(torch.export.exported_program, _override.__name__, override))
        scope.enter_context(patch.object(GraphModule, "recompile", recompile))
        scope.enter_context(patch.object(GraphModule, "_code", property(_code, _set_code), create=True))
        # where nodes come from, which errors would tell, is copied whole at each step: a list of what is never changed
        shallow = SimpleNamespace(deepcopy=copy.copy, copy=copy.copy)
        scope.enter_context(patch.object(torch.fx.traceback, "copy", shallow))
        # looks through the sources of the whole call stack for a deprecated caller, to warn of it
        scope.enter_context(patch.object(XnnpackPartitioner, "_check_if_called_from_to_backend", lambda self: False))
        yield
