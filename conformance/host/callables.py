"""Objects that a user names as `module:attribute`."""

import importlib
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from types import ModuleType
from typing import Any

import torch

from conformance.errors import UsageError, brief


@contextmanager
def users_code(what: str, advice: str) -> Iterator[None]:
    """Execute code of a user in this scope, with imports as if from the current folder.

    torch uses one thread here and afterwards: forked children would lack the threads of a pool, and wait for them. torch's
    default dtype is afterwards as before. What the code prints goes to stderr, for stdout has what a command prints. Raises
    UsageError with whatever the code raises, between `what` and `advice`; a call of sys.exit is such an exception.
    """
    torch.set_num_threads(1)
    dtype = torch.get_default_dtype()
    sys.path.insert(0, "")
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UsageError(f"{what} {brief(error)}; {advice}") from error
    finally:
        if "" in sys.path:
            sys.path.remove("")
        torch.set_num_threads(1)
        torch.set_default_dtype(dtype)


def module_of(option: str, path: str) -> ModuleType:
    """Return the module of a name, imported as if from the current folder. Raises UsageError with what the import raises."""
    with users_code(f"{option} {path!r}:", "it has to be importable from here"):
        return importlib.import_module(path)


def attribute_of(option: str, path: str) -> Any:
    """Return the object that `module:attribute` names, imported as if from the current folder; the attribute may be a path of
    names with dots between them. `option` is named in errors.

    Raises UsageError if the path is written otherwise, or naming the exception that the import raises.
    """
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise UsageError(f"{option} {path!r}: write it as module:attribute")
    with users_code(f"{option} {path!r}:", "it has to be importable from here"):
        return operator.attrgetter(attribute)(importlib.import_module(module))


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
    with users_code(f"{option} {path!r} raises", "it is called without arguments"):
        return called()
