"""Engines by name: those of `ENGINE_TABLE`, and those of third parties that `module:attribute` names."""

import inspect
import string
from functools import cache

from conformance.configs.engines import ENGINE_TABLE, EngineSpec
from conformance.errors import UsageError, brief
from conformance.host.callables import attribute_of, result_of
from conformance.host.isolation import Death, Done, run_isolated
from conformance.suggestions import unknown

from .native import NATIVE
from .protocol import Engine

NAMED = frozenset(string.ascii_letters + string.digits + "_.-")
"""Characters of the name of an engine: an id separates its parts with others, and globs have others."""

MEMBERS = tuple(name for name in (*Engine.__annotations__, *vars(Engine)) if not name.startswith("_"))
"""What an engine has to have."""


def engine(name: str) -> Engine:
    """Return an engine of `ENGINE_TABLE`. Its module is imported on first use.

    Raises UsageError for an unknown name. The message suggests the nearest name and lists all.
    """
    if name not in ENGINE_TABLE:
        raise unknown("engine", name, ENGINE_TABLE)
    implementation = ENGINE_TABLE[name].implementation
    return NATIVE[name] if implementation is None else _implementation(implementation)


@cache
def _implementation(path: str) -> Engine:
    """The object that `module:attribute` names, or what it returns if it is a class or a function."""
    made: Engine = result_of("--engine", path) if _is_made(path) else attribute_of("--engine", path)
    return made


def _is_made(path: str) -> bool:
    named = attribute_of("--engine", path)
    return inspect.isclass(named) or inspect.isroutine(named)


def engine_expression(name: str) -> tuple[str, str]:
    """The module to import for an engine that is not torch's own, and the expression of the engine."""
    path = ENGINE_TABLE[name].implementation
    assert path is not None
    module, _, attribute = path.partition(":")
    return module, f"{module}.{attribute}{'()' if _is_made(path) else ''}"


def engine_name(text: str) -> str:
    """Return the name of the engine that a value of `--engine` names. An engine of a third party is added to `ENGINE_TABLE`.

    A third party's engine is imported and warmed up in a child first, which may crash.

    Args:
        text: the name of an engine of the table, or the `module:attribute` of one that is not in it.

    Raises UsageError for a name that is unknown, and for an object that cannot be imported or used, naming the fix.
    """
    if ":" not in text:
        engine(text)
        return text
    (tried,) = run_isolated([text], _problem)
    if isinstance(tried, Death):
        raise UsageError(
            f"--engine {text!r}: the process ends as it is loaded: {tried.reason}: import it in Python to see"
        )
    problem = tried.value if isinstance(tried, Done) else tried.traceback.strip().splitlines()[-1]
    if problem:
        raise UsageError(problem)
    loaded = _implementation(text)
    spec = EngineSpec(text, getattr(loaded, "reduced_range", False), getattr(loaded, "ahead_of_time", False))
    taken = ENGINE_TABLE.setdefault(loaded.name, spec)
    if taken != spec:
        owner = f"that of {taken.implementation!r}" if taken.implementation else "one of torch's own"
        raise UsageError(f"--engine {text!r}: its name {loaded.name!r} is {owner}: give it a name of its own")
    return loaded.name


def _problem(path: str) -> str:
    """What is wrong with a third party's engine, or an empty text."""
    try:
        loaded = _implementation(path)
    except UsageError as error:
        return str(error)
    if missing := [member for member in MEMBERS if not hasattr(loaded, member)]:
        return (
            f"--engine {path!r}: {type(loaded).__name__} has no {', '.join(missing)}: make it a subclass of "
            "conformance.engines.torch_engine.TorchEngine"
        )
    if not isinstance(loaded.name, str) or not loaded.name or set(loaded.name) - NAMED:
        return f"--engine {path!r}: its name is {loaded.name!r}: name it with letters, digits and _.- alone"
    try:
        loaded.warm_up()
    except (Exception, SystemExit) as error:
        return f"--engine {path!r}: warm_up raises {brief(error)}"
    return ""
