"""Calls that neither a profiler nor a dispatch mode sees, because both belong to the thread that starts them.

Some engines convert weights to float and back when they pack or unpack them. The suite would take that for a conversion
inside of the mutated kernel.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch

T = TypeVar("T")

_THREADS: dict[int, ThreadPoolExecutor] = {}
"""The thread of each process by its id: a forked child has none of its parent's."""


def unseen(function: Callable[..., T], *args: Any) -> T:
    """Call a function on another thread, without gradients, and return its result."""
    if os.getpid() not in _THREADS:
        _THREADS[os.getpid()] = ThreadPoolExecutor(1)
    return _THREADS[os.getpid()].submit(_without_gradients, function, *args).result()


def _without_gradients(function: Callable[..., T], *args: Any) -> T:
    with torch.no_grad():
        return function(*args)
