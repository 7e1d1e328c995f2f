"""Engines by name."""

from importlib import import_module

from conformance.configs.engines import ENGINE_TABLE
from conformance.suggestions import unknown

from .native import NATIVE
from .protocol import Engine


def engine(name: str) -> Engine:
    """Return an engine of `ENGINE_TABLE`. Its module is imported on first use.

    Raises UsageError for an unknown name. The message suggests the nearest name and lists all.
    """
    if name not in ENGINE_TABLE:
        raise unknown("engine", name, ENGINE_TABLE)
    implementation = ENGINE_TABLE[name].implementation
    if implementation is None:
        return NATIVE[name]
    module, _, attribute = implementation.partition(":")
    imported: Engine = getattr(import_module(module), attribute)
    return imported
