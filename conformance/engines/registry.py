"""The table of engines by name."""

from conformance.suggestions import unknown

from .protocol import Engine


def engine(name: str) -> Engine:
    """Return an engine by name. Raises UsageError for an unknown one."""
    from conformance.engines.executorch.runtime import EXECUTORCH

    from .native import NATIVE

    engines: dict[str, Engine] = {**NATIVE, EXECUTORCH.name: EXECUTORCH}
    if name not in engines:
        raise unknown("engine", name, engines)
    return engines[name]
