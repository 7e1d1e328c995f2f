"""Limits of the instruction set. They have no effect once torch has loaded; this module does not load it."""

import os
import sys

from conformance.errors import UsageError

from .cpu import ISA_LIMITS, cpu, isa


def limit_isa(name: str) -> None:
    """Limit the instruction set of this process and its children.

    Raises UsageError for an unknown name, one that the CPU does not have, and if torch has loaded without the limit.
    """
    if name not in ISA_LIMITS:
        raise UsageError(f"--isa {name!r}: choose from {', '.join(ISA_LIMITS)}")
    if (flags := cpu()[1]) and name not in flags:
        raise UsageError(f"--isa {name}: this CPU does not have it, but {isa(None)}")
    variables = ISA_LIMITS[name]
    if any(os.environ.get(key) != value for key, value in variables.items()) and "torch" in sys.modules:
        setting = " ".join(f"{key}={value}" for key, value in variables.items())
        raise UsageError(f"--isa {name}: torch is loaded already; set {setting} in the environment instead")
    os.environ.update(variables)
