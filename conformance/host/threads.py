"""The number of threads that kernels use."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

COUNTS = (2, 3, 4, 7)
"""The numbers of threads on which kernels are executed again."""


class _Process:
    """Whether this process is a forked child."""

    forked = False


def _mark() -> None:
    _Process.forked = True


os.register_at_fork(after_in_child=_mark)


def most(count: int) -> int:
    """The number of threads on which this process may compute, at most `count`: one that forks may use a single one, because
    a child has none of its parent's threads, and waits for them."""
    return count if _Process.forked else 1


@contextmanager
def thread_count(count: int) -> Iterator[None]:
    """Execute kernels on so many threads in this scope."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
