"""Engines by name."""

import difflib
from importlib import import_module

from conformance.configs.engines import ENGINE_TABLE
from conformance.errors import UsageError

from .native import NATIVE
from .protocol import Engine


def engine(name: str) -> Engine:
    """Return an engine of `ENGINE_TABLE`. Its module is imported on first use.

    Raises UsageError for an unknown name. The message suggests the nearest name and lists all.
    """
    if name not in ENGINE_TABLE:
        nearest = difflib.get_close_matches(name, ENGINE_TABLE, n=1)
        suggestion = f"did you mean {nearest[0]}? Choose from" if nearest else "choose from"
        raise UsageError(f"unknown engine {name!r}: {suggestion} {', '.join(ENGINE_TABLE)}")
    implementation = ENGINE_TABLE[name].implementation
    if implementation is None:
        return NATIVE[name]
    module, _, attribute = implementation.partition(":")
    imported: Engine = getattr(import_module(module), attribute)
    return imported
