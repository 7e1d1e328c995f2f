"""The table of engines by name."""

from conformance.errors import UsageError

from .protocol import Engine


def engine(name: str) -> Engine:
    """Return an engine by name. Raises UsageError for an unknown one."""
    from conformance.engines.executorch.runtime import EXECUTORCH

    from .native import NATIVE

    engines: dict[str, Engine] = {**NATIVE, EXECUTORCH.name: EXECUTORCH}
    if name not in engines:
        raise UsageError(f"unknown engine {name!r}: choose from {', '.join(engines)}")
    return engines[name]
