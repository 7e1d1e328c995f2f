"""Rules about patterns: what cannot be matched, or is matched by another entry."""

import inspect
import warnings
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.ao.nn.intrinsic.modules.fused import _FusedModule
from torch.ao.quantization.utils import MatchAllNode
from torch.fx import Graph, Proxy
from torch.fx._symbolic_trace import _wrapped_fns_to_patch
from torch.fx.proxy import GraphAppendingTracer

from conformance.configs.names import pattern_name

from .declared import Declared, DeclaredEntry, is_module_class
from .rules import error, warning

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
MOST_ARGUMENTS = 8
"""Arguments of a function that is tried with proxies."""


@error("pattern-missing", "BackendPatternConfig()")
def _missing(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """An entry without a pattern is refused by torch."""
    if one.pattern is None:
        yield "it has no pattern"


@error("pattern-length", "BackendPatternConfig((nn.Linear,))")
def _length(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """torch takes sequences of two or three operators; one operator is written without a tuple, others in the complex
    format."""
    if one.entry._pattern_complex_format is None and isinstance(one.pattern, tuple) and len(one.pattern) not in (2, 3):
        yield f"its sequence has {len(one.pattern)} operators"


@error("pattern-operator", "BackendPatternConfig(nn.ReLU())")
def _operator(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """A pattern consists of module classes, functions and names of methods; anything else never matches."""
    if one.pattern is None:
        return
    for operator in one.operators:
        if isinstance(operator, nn.Module):
            yield f"{type(operator).__name__}() is a module, not a class of modules"
        elif isinstance(operator, type) and not issubclass(operator, nn.Module):
            yield f"{operator.__name__} is no class of modules"
        elif not isinstance(operator, str) and not callable(operator):
            yield f"{operator!r} is no module class, function or name of a method"
    if not one.operators:
        yield "it has no operator"


@error("method-unknown", 'BackendPatternConfig("shape")')
def _method(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """A string names a method of tensors. FX records attributes such as shape as calls of getattr, which no string
    matches."""
    for name in one.operators:
        if isinstance(name, str) and not hasattr(torch.Tensor, name):
            yield f"tensors have no method {name!r}"
        elif isinstance(name, str) and not callable(getattr(torch.Tensor, name)):
            yield f"{name!r} is an attribute of tensors and no method"


@error("function-not-recorded", "BackendPatternConfig(F.tanh)")
def _function(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """FX records calls of functions that torch or operator define and of those that torch.fx.wrap names. It traces through
    other functions written in Python, so their pattern never matches."""
    for operator in one.operators:
        if callable(operator) and not isinstance(operator, (type, nn.Module)) and recorded(operator) is False:
            yield f"{pattern_name(operator)} is traced through"


def recorded(function: Callable[..., Any]) -> bool | None:
    """Whether FX records a call of a function; None if it cannot be called with proxies alone."""
    if function is MatchAllNode:
        return None
    if isinstance(function, FunctionType) and (id(function.__globals__), function.__name__) in _wrapped_fns_to_patch:
        return True
    called = False
    for count in _argument_counts(function):
        graph = Graph()
        tracer = GraphAppendingTracer(graph)
        arguments = [Proxy(graph.placeholder(f"x{number}"), tracer) for number in range(count)]
        try:
            with warnings.catch_warnings(action="ignore"):  # of deprecated numbers of arguments
                function(*arguments)
        except Exception:  # whatever a function does with proxies, it was not recorded with so many
            continue
        called = True
        if any(node.target is function for node in graph.nodes):
            return True
    return False if called else None


def _argument_counts(function: Callable[..., Any]) -> range:
    """The numbers of positional arguments to try: those that a signature requires, or up to MOST_ARGUMENTS."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return range(1, MOST_ARGUMENTS)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = sum(one.kind in positional and one.default is inspect.Parameter.empty for one in parameters)
    return range(max(1, required), max(1, required) + 1) if required else range(1, MOST_ARGUMENTS)


@error("container", "BackendPatternConfig(nn.Sequential)")
def _container(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """Containers are traced through: FX never records a call of one."""
    for operator in one.operators:
        if is_module_class(operator) and operator in CONTAINERS:
            yield f"{pattern_name(operator)} is a container"


@warning("module-traced-through", "BackendPatternConfig(MyActivation)")
def _traced_through(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """FX traces through modules that neither torch.nn nor torch.ao.nn define and that no entry produces by fusing or for
    QAT. They match only in models whose owner names them in PrepareCustomConfig.set_non_traceable_module_classes."""
    for operator in one.operators:
        if not is_module_class(operator) or operator in declared.produced or issubclass(operator, _FusedModule):
            continue
        if not operator.__module__.startswith(("torch.nn", "torch.ao.nn")):
            yield f"{pattern_name(operator)} is traced through"


@error("duplicate", "[BackendPatternConfig(nn.ReLU), BackendPatternConfig(nn.ReLU)]")
def _duplicate(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """Of two entries with the same pattern torch keeps the last one."""
    try:
        same = [other for other in declared.entries if one.nested is not None and other.nested == one.nested]
    except TypeError:
        return
    if same and same[0] is not one:
        yield f"its pattern is that of {same[0].label}"


@error("root-is-wildcard", "BackendPatternConfig()._set_pattern_complex_format((torch.add, nn.Conv2d, MatchAllNode))")
def _root(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """The root is the operator that takes the pattern's input. torch finds it by following last operands; if that ends in
    a wildcard, the entry needs a root_node_getter."""
    last = one.nested
    while isinstance(last, tuple) and last:
        last = last[-1]
    if last is MatchAllNode and one.entry._root_node_getter is None:
        yield "its root is a wildcard"
    if one.entry._root_node_getter is not None and not callable(one.entry._root_node_getter):
        yield "its root_node_getter cannot be called"
