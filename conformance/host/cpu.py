"""Model, flags and effective instruction set of the CPU."""

import os
import platform
import re
from pathlib import Path

ISA_LIMITS = {
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "avx512f": {
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "FBGEMM_ENABLE_INSTRUCTIONS": "AVX512",
        "ATEN_CPU_CAPABILITY": "avx512",
    },
}
"""Environment variables for each limit. torch's libraries read them once, when torch loads."""


def cpu() -> tuple[str, tuple[str, ...]]:
    """Return the model name and the sorted flags of the CPU, as far as the operating system tells."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown", ()
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.M)
    return model[1] if model else platform.processor() or "unknown", tuple(sorted(flags[1].split())) if flags else ()


WIDEST_FIRST = ("avx512_vnni", "avx_vnni", "avx512f", "avx2")
"""Flags of instruction sets for 8-bit products."""


def isa(limit: str | None) -> str:
    """Return the widest instruction set for 8-bit products that the CPU has and `limit`, or the limit set in the environment,
    admits.

    Outside of x86 it is the name of the architecture. `+amx` is appended where the CPU has AMX for 8-bit integers.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return platform.machine()
    limit = limit or _limit_of_the_environment()
    names = WIDEST_FIRST[WIDEST_FIRST.index(limit) :] if limit else WIDEST_FIRST
    flags = cpu()[1]
    name = next((name for name in names if name in flags), "baseline")
    return f"{name}+amx" if "amx_int8" in flags and not limit else name


def _limit_of_the_environment() -> str | None:
    for name, settings in ISA_LIMITS.items():
        if all(os.environ.get(key) == value for key, value in settings.items()):
            return name
    return None
