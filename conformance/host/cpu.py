"""Model, flags and effective instruction set of the CPU."""

import os
import platform
import re
from pathlib import Path

from .isa import ISA_LIMITS


def cpu() -> tuple[str, tuple[str, ...]]:
    """Return the model name and the sorted flags of the CPU, as far as the operating system tells."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown", ()
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.M)
    return model[1] if model else platform.processor() or "unknown", tuple(sorted(flags[1].split())) if flags else ()


def isa(limit: str | None) -> str:
    """Return `limit` or the limit set in the environment; without one, the widest instruction set for 8-bit products.

    Outside of x86 it is the name of the architecture. `+amx` is appended where the CPU has AMX for 8-bit integers.
    """
    if limit:
        return limit
    for name, settings in ISA_LIMITS.items():
        if all(os.environ.get(key) == value for key, value in settings.items()):
            return name
    if platform.machine() not in ("x86_64", "AMD64"):
        return platform.machine()
    flags = cpu()[1]
    name = next((name for name in ("avx512_vnni", "avx_vnni", "avx512f", "avx2") if name in flags), "baseline")
    return f"{name}+amx" if "amx_int8" in flags else name
