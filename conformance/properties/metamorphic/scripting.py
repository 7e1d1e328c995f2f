"""Compilation by TorchScript without reading the same sources again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch

from conformance.shortcuts import enabled

MOST_FUNCTIONS = 256
"""Functions whose annotations are remembered: TorchScript reads those of the methods of some 20 functions for each model."""

_read: Callable[[Any], dict[str, Any]] = torch._jit_internal.get_type_hint_captures
_remembered = lru_cache(MOST_FUNCTIONS)(_read)


@contextmanager
def remembered_annotations() -> Iterator[None]:
    """Make TorchScript remember the types that functions name in their annotations, which it parses from source text."""
    if not enabled("remembered-annotations"):
        yield
        return
    torch._jit_internal.get_type_hint_captures = _remembered
    try:
        yield
    finally:
        torch._jit_internal.get_type_hint_captures = _read
