"""Models compiled by TorchScript, saved and loaded."""

import copy
import inspect
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, symbolic_trace
from torch.jit._check import AttributeTypeIsSupportedChecker

from conformance.shortcuts import enabled

MOST_FUNCTIONS = 256
"""Functions whose source is remembered: TorchScript reads that of the methods of some 20 functions for each model."""

_read: Callable[[Any], dict[str, Any]] = torch._jit_internal.get_type_hint_captures

_read_lines: Callable[..., tuple[list[str], int, str | None]] = torch._sources.get_source_lines_and_file
_lines = lru_cache(MOST_FUNCTIONS)(_read_lines)

_check = AttributeTypeIsSupportedChecker.check
_checked: set[Any] = set()


@lru_cache(MOST_FUNCTIONS)
def _types_or_error(function: Any) -> dict[str, Any] | Exception:
    try:
        return _read(function)
    except Exception as error:  # of annotations that TorchScript does not know
        return error


def _remembered(function: Any) -> dict[str, Any]:
    """The types in the annotations of a function."""
    found = _types_or_error(function)
    if isinstance(found, Exception):
        raise found.with_traceback(None)
    return found


def _remembered_lines(obj: Any, error_msg: str | None = None) -> tuple[list[str], int, str | None]:
    """The lines of a function's source. `error_msg`, the call stack, is in the error if there is no source."""
    try:
        return _lines(obj)
    except OSError:
        return _read_lines(obj, error_msg)


def _check_once(self: AttributeTypeIsSupportedChecker, nn_module: nn.Module) -> None:
    """Warn of annotations of empty containers in the constructor of a module that TorchScript does not support."""
    if type(nn_module).__init__ not in _checked:
        _check(self, nn_module)
        _checked.add(type(nn_module).__init__)


def read_graphs() -> None:
    """Remember the types in the annotations of `torch.fx.Graph`, which TorchScript reads for each graph module that it
    compiles."""
    for function in filter(inspect.isfunction, vars(Graph).values()):
        _types_or_error(function)


def scripted(model: nn.Module) -> Any:
    """The model compiled by TorchScript, saved and loaded."""
    saved = io.BytesIO()
    torch.jit.save(torch.jit.script(model), saved)
    saved.seek(0)
    return torch.jit.load(saved)  # type: ignore[no-untyped-call]


@contextmanager
def remembered_sources() -> Iterator[None]:
    """Make TorchScript remember the source of functions, the types that it parses from their annotations, and what it has
    checked."""
    if not enabled("remembered-sources"):
        yield
        return
    torch._jit_internal.get_type_hint_captures = _remembered
    torch._sources.get_source_lines_and_file = _remembered_lines
    AttributeTypeIsSupportedChecker.check = _check_once  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch._jit_internal.get_type_hint_captures = _read
        torch._sources.get_source_lines_and_file = _read_lines
        AttributeTypeIsSupportedChecker.check = _check  # type: ignore[method-assign]


@contextmanager
def compiling() -> Iterator[None]:
    """A block that compiles by TorchScript. A class whose compilation fails is left half-built, and fails for that reason
    when it is compiled again, unless TorchScript forgets it."""
    try:
        with remembered_sources():
            yield
    except Exception:
        torch.jit._recursive.concrete_type_store = torch.jit._recursive.ConcreteTypeStore()
        raise


def compiles(model: nn.Module) -> bool:
    """Whether TorchScript compiles a float model that FX has traced."""
    with suppress(RuntimeError), compiling():
        torch.jit.script(symbolic_trace(copy.deepcopy(model).eval()))
        return True
    return False
