"""What executes a quantized model: the protocol and the table of engines."""

from contextlib import AbstractContextManager
from typing import Protocol

from ..errors import UsageError


class Engine(Protocol):
    """Something that executes quantized models on this host, or says why it cannot."""

    name: str

    def unavailable(self) -> str | None:
        """Return why this engine cannot run here, or None if a small op has run on it."""

    def scope(self) -> AbstractContextManager[None]:
        """Make this the engine that convert and execution use, and restore what was before on leaving."""


def engine(name: str) -> Engine:
    """Return an engine by name. Raises UsageError for an unknown one."""
    from .executorch import EXECUTORCH
    from .native import NATIVE

    engines: dict[str, Engine] = {**NATIVE, EXECUTORCH.name: EXECUTORCH}
    if name not in engines:
        raise UsageError(f"unknown engine {name!r}: choose from {', '.join(engines)}")
    return engines[name]
