"""The environment of an invocation, as headers of files record it: versions, operating system, CPU, git revision."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from conformance import __version__
from conformance.configs.engines import PACKAGES

from .cpu import cpu, isa


def version_of(package: str) -> str | None:
    """The version of an installed package, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def packages() -> dict[str, str]:
    """The versions of the packages beside torch that decide what engines do, of those that are installed."""
    return {name: found for name in PACKAGES if (found := version_of(name))}


def installed() -> tuple[str, ...]:
    """The same as the conditions of the ledger see them: `executorch 1.4.1`."""
    return tuple(f"{name} {version}" for name, version in packages().items())


def environment(isa_limit: str | None) -> dict[str, Any]:
    """Return the environment as JSON values. `isa_limit` is the instruction set that `--isa` names, or None."""
    model, flags = cpu()
    return {
        "suite": __version__,
        "torch": torch.__version__,
        "packages": packages(),
        "python": platform.python_version(),
        "os": platform.platform(),
        "arch": platform.machine(),
        "cpu": model,
        "cpu_flags": list(flags),
        "isa_limit": isa_limit,
        "isa": isa(isa_limit),
        "git": _revision(),
    }


def _revision() -> str | None:
    """The git revision of the suite's checkout, ending in `-dirty` if files are changed; None outside of a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
