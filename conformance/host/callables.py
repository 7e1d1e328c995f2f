"""Objects that a user names as `module:attribute`."""

import importlib
import operator
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from conformance.errors import UsageError, brief


def module_of(option: str, path: str) -> ModuleType:
    """Return the module of a name, imported as if from the current folder. Raises UsageError with what the import raises."""
    sys.path.insert(0, "")
    try:
        return importlib.import_module(path)
    except Exception as error:
        raise UsageError(f"{option} {path!r}: {brief(error)}; it has to be importable from here") from error
    finally:
        sys.path.remove("")


def attribute_of(option: str, path: str) -> Any:
    """Return the object that `module:attribute` names, imported as if from the current folder; the attribute may be a path of
    names with dots between them. `option` is named in errors.

    Raises UsageError if the path is written otherwise, or naming the exception that the import raises.
    """
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise UsageError(f"{option} {path!r}: write it as module:attribute")
    sys.path.insert(0, "")
    try:
        return operator.attrgetter(attribute)(importlib.import_module(module))
    except Exception as error:
        raise UsageError(f"{option} {path!r}: {brief(error)}; it has to be importable from here") from error
    finally:
        sys.path.remove("")


def object_of(option: str, path: str) -> tuple[Any, str]:
    """Return the object that `module:attribute.path` names, or what it returns if it is a callable, and the expression of it.

    Raises UsageError as `result_of` does.
    """
    module, _, attribute = path.partition(":")
    named = attribute_of(option, path)
    if callable(named):
        return result_of(option, path), f"{module}.{attribute}()"
    return named, f"{module}.{attribute}"


def result_of(option: str, path: str) -> Any:
    """Return what the callable that `module:callable` names returns when it is called without arguments.

    Raises UsageError as `attribute_of` does, or naming the exception that the call raises.
    """
    called: Callable[[], Any] = attribute_of(option, path)
    if not callable(called):
        raise UsageError(
            f"{option} {path!r} is of type {type(called).__name__}, which cannot be called: name a function"
        )
    try:
        return called()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{option} {path!r} raises {brief(error)}; it is called without arguments") from error
