"""What newly allocated memory holds, so that a kernel that reads what it never wrote gives itself away."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

M_PERTURB = -6
"""glibc's parameter: allocated bytes are set to the complement of its value (mallopt(3))."""


def _mallopt(value: int) -> None:
    """Set M_PERTURB; a C library without mallopt is left alone."""
    function = getattr(ctypes.CDLL(None), "mallopt", None)
    if function is not None:
        function(M_PERTURB, value)


@contextmanager
def fresh_memory_holds(value: int) -> Iterator[None]:
    """Fill what is allocated in this scope with one byte. Two runs with different bytes differ if a kernel reads it."""
    _mallopt(value ^ 0xFF)
    try:
        yield
    finally:
        _mallopt(0)
