"""A stopwatch for blocks of code."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """A context manager that adds up the seconds of all blocks that it times."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start
