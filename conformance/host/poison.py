"""A known byte in newly allocated memory, which exposes a kernel that reads memory before writing it."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

M_PERTURB = -6
"""The parameter of glibc's mallopt(3) that sets allocated bytes to the complement of its value."""


_FUNCTION = getattr(ctypes.CDLL(None), "mallopt", None)


def _mallopt(value: int) -> None:
    """Set M_PERTURB; do nothing if the C library has no mallopt."""
    if _FUNCTION is not None:
        _FUNCTION(M_PERTURB, value)


@contextmanager
def fresh_memory_holds(value: int) -> Iterator[None]:
    """Fill memory that is allocated in this scope with one byte.

    The outputs of two runs with different bytes differ if a kernel reads memory that it has not written.
    """
    _mallopt(value ^ 0xFF)
    try:
        yield
    finally:
        _mallopt(0)
