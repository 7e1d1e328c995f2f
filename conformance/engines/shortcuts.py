"""Shortcuts that lowering takes through torch and ExecuTorch: the same programs, byte by byte, in 40% of the time.

Lowering a model of one operator runs some forty passes, and most of their time goes to what does not depend on the model.
Each shortcut here replaces one such thing in the scope of a lowering and says what it is. tests/test_executorch.py lowers
with and without them and compares the programs.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch._export.utils
import torch._ops
import torch.export.decomp_utils
import torch.export.exported_program
import torch.fx.traceback
from torch._C import DispatchKey
from torch.fx import GraphModule
from torch.fx.graph import _PyTreeCodeGen

composite_operators = cache(torch._export.utils._collect_all_valid_cia_ops)
"""The operators that torch may decompose. Every decomposition, three a lowering, asks the dispatcher anew for all of them in
every namespace (a third of the time), because somebody may have registered another; in a lowering nobody does."""

_py_impl = torch._ops.OperatorBase.py_impl


def py_impl(self: Any, key: Any) -> Callable[[Any], Any]:
    """Register a Python kernel. torch's own evaluates the annotations of an inner function at each of the 36,000 calls that
    a lowering makes (an eighth of the time)."""
    if not isinstance(key, DispatchKey) or key == DispatchKey.Python or key in self.py_kernels:
        return _py_impl(self, key)

    def register(kernel: Any) -> Any:
        self.py_kernels[key] = kernel
        self._dispatch_cache.clear()
        return kernel

    return register


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
        scope.enter_context(patch.object(torch._ops.OperatorBase, "py_impl", py_impl))
        scope.enter_context(patch.object(GraphModule, "recompile", recompile))
        scope.enter_context(patch.object(GraphModule, "_code", property(_code, _set_code), create=True))
        # where nodes come from, which errors would tell, is copied whole at each step: a list of what is never changed
        shallow = SimpleNamespace(deepcopy=copy.copy, copy=copy.copy)
        scope.enter_context(patch.object(torch.fx.traceback, "copy", shallow))
        # looks through the sources of the whole call stack for a deprecated caller, to warn of it
        scope.enter_context(patch.object(XnnpackPartitioner, "_check_if_called_from_to_backend", lambda self: False))
        yield
