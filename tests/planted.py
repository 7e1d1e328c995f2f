"""Kernels in C for the guard of memory: right ones, and ones that leave their operand by one element."""

import ctypes
import subprocess
from pathlib import Path

from torch import Tensor

from conformance.host.guard import compiler

SOURCE = r"""
#include <stdint.h>
#include <string.h>

int64_t sum(const volatile uint8_t *operand, int64_t bytes) {
    int64_t total = 0;
    for (int64_t i = 0; i < bytes; i++) total += operand[i];
    return total;
}
int64_t fill(volatile uint8_t *operand, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++) operand[i] = 7;
    return bytes;
}
int64_t reads_before(const volatile uint8_t *operand, int64_t bytes) { return operand[-1] + sum(operand, bytes); }
int64_t reads_beyond(const volatile uint8_t *operand, int64_t bytes) { return sum(operand, bytes + 1); }
int64_t writes_before(volatile uint8_t *operand, int64_t bytes) { operand[-1] = 7; return fill(operand, bytes); }
int64_t writes_beyond(volatile uint8_t *operand, int64_t bytes) { return fill(operand, bytes + 1); }

#if defined(__x86_64__)
// Copy the first bytes of an operand to its last ones by instructions that demand alignment; -1 if the CPU lacks these.
#define COPY(name, feature, move, load, store, width) \
    int64_t name(uint8_t *operand, int64_t bytes) { \
        if (!__builtin_cpu_supports(feature)) return -1; \
        __asm__ volatile(move " " load "\n\t" move " " store :: "r"(operand), "r"(operand + bytes - width) : "memory"); \
        return memcmp(operand, operand + bytes - width, width) == 0; \
    }
COPY(movaps, "sse2", "movaps", "(%0), %%xmm1", "%%xmm1, (%1)", 16)
COPY(movaps_rex, "sse2", "movaps", "(%0), %%xmm9", "%%xmm9, (%1)", 16)
COPY(movapd, "sse2", "movapd", "(%0), %%xmm1", "%%xmm1, (%1)", 16)
COPY(movdqa, "sse2", "movdqa", "(%0), %%xmm1", "%%xmm1, (%1)", 16)
COPY(movdqa_rex, "sse2", "movdqa", "(%0), %%xmm9", "%%xmm9, (%1)", 16)
COPY(vmovaps, "avx", "vmovaps", "(%0), %%ymm1", "%%ymm1, (%1)", 32)
COPY(vmovdqa, "avx", "vmovdqa", "(%0), %%ymm1", "%%ymm1, (%1)", 32)
COPY(vmovdqa_rex, "avx", "vmovdqa", "(%0), %%ymm9", "%%ymm9, (%1)", 32)
COPY(vmovaps_evex, "avx512f", "vmovaps", "(%0), %%zmm1", "%%zmm1, (%1)", 64)
COPY(vmovdqa_evex, "avx512f", "vmovdqa64", "(%0), %%zmm17", "%%zmm17, (%1)", 64)
#endif
"""


class Planted:
    """The kernels, compiled into a folder."""

    def __init__(self, folder: Path) -> None:
        path = folder / "planted.so"
        command = [*compiler(), "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
        subprocess.run(command, input=SOURCE, text=True, check=True)
        self.library = ctypes.CDLL(str(path))

    def call(self, name: str, operand: Tensor) -> int:
        """Call a kernel on the bytes of a contiguous tensor."""
        kernel = getattr(self.library, name)
        kernel.argtypes, kernel.restype = [ctypes.c_void_p, ctypes.c_int64], ctypes.c_int64
        return int(kernel(operand.data_ptr(), operand.nbytes))
