"""The number of instructions that a call executes, from a hardware counter (Linux, perf_event_open(2)).

Unlike seconds, the number has almost no noise. Many containers and virtual machines have no such counter.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SYSCALLS = {"x86_64": 298, "aarch64": 241}
"""The number of the system call perf_event_open by architecture."""
HARDWARE, INSTRUCTIONS = 0, 1
SIZE = 112
"""The size of `perf_event_attr` (version 5) in bytes. Fields that are not set are zero."""
FLAGS = 1 << 1 | 1 << 5 | 1 << 6
"""`inherit` (threads that start later count too), `exclude_kernel` and `exclude_hv`."""


def _open() -> int:
    """Return a file descriptor that counts the instructions of this process; negative without a counter."""
    number = SYSCALLS.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return -1
    attributes = struct.pack("=IIQQQQQ", HARDWARE, SIZE, INSTRUCTIONS, 0, 0, 0, FLAGS).ljust(SIZE, b"\0")
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    return int(syscall(number, ctypes.create_string_buffer(attributes, SIZE), 0, -1, -1, ctypes.c_ulong(0)))


@contextmanager
def _counter() -> Iterator[int | None]:
    descriptor = _open()
    try:
        yield None if descriptor < 0 else descriptor
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def of(call: Callable[[], object]) -> int | None:
    """Return the instructions of one call in this process: the least of three counts, or None without a counter."""
    counts: list[int] = []
    for _ in range(3):
        with _counter() as descriptor:
            if descriptor is None:
                return None
            call()
            (count,) = struct.unpack("=Q", os.read(descriptor, 8))
            counts.append(count)
    return min(counts)
