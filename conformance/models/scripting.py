"""Models compiled by TorchScript, saved and loaded."""

import copy
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.fx import symbolic_trace

from conformance.shortcuts import enabled

MOST_FUNCTIONS = 256
"""Functions whose source is remembered: TorchScript reads that of the methods of some 20 functions for each model."""

_read: Callable[[Any], dict[str, Any]] = torch._jit_internal.get_type_hint_captures
_remembered = lru_cache(MOST_FUNCTIONS)(_read)

_read_lines: Callable[..., tuple[list[str], int, str | None]] = torch._sources.get_source_lines_and_file
_lines = lru_cache(MOST_FUNCTIONS)(_read_lines)


def _remembered_lines(obj: Any, error_msg: str | None = None) -> tuple[list[str], int, str | None]:
    """The lines of a function's source. `error_msg`, the call stack, is in the error if there is no source."""
    try:
        return _lines(obj)
    except OSError:
        return _read_lines(obj, error_msg)


def scripted(model: nn.Module) -> Any:
    """The model compiled by TorchScript, saved and loaded."""
    saved = io.BytesIO()
    torch.jit.save(torch.jit.script(model), saved)
    saved.seek(0)
    return torch.jit.load(saved)  # type: ignore[no-untyped-call]


@contextmanager
def remembered_sources() -> Iterator[None]:
    """Make TorchScript remember the source of functions, and the types that it parses from their annotations."""
    if not enabled("remembered-sources"):
        yield
        return
    torch._jit_internal.get_type_hint_captures = _remembered
    torch._sources.get_source_lines_and_file = _remembered_lines
    try:
        yield
    finally:
        torch._jit_internal.get_type_hint_captures = _read
        torch._sources.get_source_lines_and_file = _read_lines


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
