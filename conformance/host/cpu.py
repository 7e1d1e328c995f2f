"""CPU model, flags and effective instruction set of this host."""

import os
import platform
import re
from pathlib import Path

from .isa import ISA_LIMITS


def cpu() -> tuple[str, tuple[str, ...]]:
    """Model name and instruction set flags of the CPU, as far as the system tells."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown", ()
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.M)
    return model[1] if model else platform.processor() or "unknown", tuple(sorted(flags[1].split())) if flags else ()


def isa(limit: str | None) -> str:
    """The widest instruction set for 8-bit products that torch's libraries use on this host, or the limit set for them."""
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
