"""Shortcuts that lowering takes through torch and ExecuTorch: the same programs, byte by byte, in a fifth of the time.

Lowering a model of one operator runs some forty passes, and most of their time goes to what does not depend on the model.
Each shortcut here replaces one such thing in the scope of a lowering and says what it is. tests/test_executorch.py lowers
with and without them and compares the programs.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch._export.utils
import torch.export.decomp_utils
import torch.export.exported_program
import torch.fx.traceback
from torch._ops import OpOverload
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node, map_arg
from torch.fx.graph import _PyTreeCodeGen
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils._pytree import tree_leaves

composite_operators = cache(torch._export.utils._collect_all_valid_cia_ops)
"""The operators that torch may decompose. Every decomposition, three a lowering, asks the dispatcher anew for all of them in
every namespace (a third of the time), because somebody may have registered another; in a lowering nobody does."""

_override = torch.export.exported_program._override_composite_implicit_decomp
_overridden: dict[tuple[Any, Any, int], tuple[dict[Any, Any], dict[Any, Any], Any]] = {}


@contextmanager
def override(decompositions: Mapping[Any, Any]) -> Iterator[None]:
    """Let operators decompose as told in this scope. torch's own registers twenty kernels for each of 1,700 operators, six
    times a lowering (a quarter); what they come to is the same every time, and is put in their place here at once."""
    before = {operator: operator.py_kernels for operator in decompositions}
    keys = {operator: (operator, _alike(how), id(before[operator])) for operator, how in decompositions.items()}
    new = {operator: how for operator, how in decompositions.items() if keys[operator] not in _overridden}
    with _override(new):
        for operator in new:  # the kernels before are kept for their address' sake
            fake = op_implementations_dict.get(operator)
            _overridden[keys[operator]] = (operator.py_kernels.copy(), before[operator], fake)
    for operator, key in keys.items():
        operator.py_kernels, _, fake = _overridden[key]
        operator._dispatch_cache.clear()
        op_implementations_dict.setdefault(operator, fake)
    try:
        yield
    finally:
        for operator, kernels in before.items():
            operator.py_kernels = kernels
            operator._dispatch_cache.clear()
            op_implementations_dict.pop(operator, None)


def _alike(decomposition: Any) -> Any:
    """The same for functions that do the same: torch makes anew the ones that decompose an operator in C++."""
    return decomposition.func.__code__ if isinstance(decomposition, partial) else decomposition


_recompile = GraphModule.recompile


def recompile(self: GraphModule) -> None:
    """Put off writing Python code for a graph until somebody calls or reads it: between passes nobody does (a fifth)."""
    codegen = self._graph._codegen
    if isinstance(codegen, _PyTreeCodeGen):
        self._in_spec, self._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
    self.__dict__.pop(CODE, None)
    type(self).forward = _compiled_when_called
    self._recompile_submodules()


def _compiled_when_called(self: GraphModule, *arguments: Any, **keywords: Any) -> Any:
    _recompile(self)
    return type(self).forward(self, *arguments, **keywords)


CODE = "_code_when_read"


def _code(self: GraphModule) -> str:
    if CODE not in self.__dict__:
        _recompile(self)
    return str(self.__dict__[CODE])


def _set_code(self: GraphModule, text: str) -> None:
    self.__dict__[CODE] = text


_decompose = torch.export.exported_program._decompose_exported_program
_kept_whole = torch._export.utils._special_op_to_preserve_cia
DECOMPOSED = "_decomposed"


def decompose(
    self: ExportedProgram, *, cia_to_decomp: dict[Any, Any], python_decomp_table: dict[Any, Any], **how: Any
) -> ExportedProgram:
    """Leave a program as it is that was decomposed once and has nothing for the next table to decompose (a sixth): lowering
    does it thrice, for the program to be functional, then without and with what the partitioner wants to be whole."""

    def stays(node: Node) -> bool:
        if node.op != "call_function":
            return True
        composite = cia_to_decomp.get(node.target, _kept_whole) is not _kept_whole
        return isinstance(node.target, OpOverload) and not composite and node.target not in python_decomp_table

    if hasattr(self.graph, DECOMPOSED) and all(map(stays, self.graph.nodes)):
        return self
    made: ExportedProgram = _decompose(
        self, cia_to_decomp=cia_to_decomp, python_decomp_table=python_decomp_table, **how
    )
    setattr(made.graph, DECOMPOSED, True)
    return made


TRACED = "_as_traced"


def trace_of_changes(trace: Callable[[Any, GraphModule], PassResult]) -> Callable[[Any, GraphModule], PassResult]:
    """Leave a graph as it is that a pass would trace anew without a change to it, which is what most do (a sixth)."""

    def call(self: Any, graph_module: GraphModule) -> PassResult:
        graph = graph_module.graph
        unchanged = getattr(graph, TRACED, None) == _content(graph)
        if unchanged and _asks_operators(type(self)) and all(_leaves(self, node) for node in graph.nodes):
            return PassResult(graph_module, True)
        result = trace(self, graph_module)
        traced = result.graph_module.graph
        setattr(traced, TRACED, _content(traced))
        return result

    return call


def _content(graph: Graph) -> list[Any]:
    """What a pass can change of a graph. Values, which are tensors without numbers, are the same only if they are one."""

    def content(node: Node) -> list[Any]:
        meta = {key: id(value) for key, value in node.meta.items()}
        return [node, node.target, _leaf_by_leaf((node.args, node.kwargs)), meta]

    return [content(node) for node in graph.nodes]


def _leaf_by_leaf(arguments: tuple[Sequence[Any], Mapping[str, Any]]) -> Any:
    """Positional and keyword arguments, to be compared: 1 is not True, and a list is as good as an immutable one."""
    positional, keywords = arguments
    leaves = [(type(leaf), leaf) for leaf in tree_leaves((tuple(positional), dict(keywords)))]
    return len(positional), list(keywords), leaves


def _leaves(one_pass: Any, node: Node) -> bool:
    """Whether a pass, which says for each operator what comes in its place, lets this one be. It is asked for its answer
    with the shapes that are known already, where tracing would have every operator compute them again."""
    from executorch.exir.dialects.edge._ops import EdgeOpOverload
    from executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue

    if type(one_pass).call_operator is ExportPass.call_operator or node.op in ("placeholder", "output"):
        return True
    if node.op != "call_function":
        return False
    if not isinstance(node.target, OpOverload | EdgeOpOverload):
        return True  # no operator

    def known(argument: Node) -> Any:
        return ProxyValue(argument.meta["val"], argument)

    given = map_arg((node.args, node.kwargs), known)
    meta = NodeMetadata(node.meta)
    asked: list[bool] = []

    def made(kind: str, target: Any, args: Any, kwargs: Any, data: Any) -> Any:
        same = _leaf_by_leaf(given) == _leaf_by_leaf((args, kwargs))
        asked.append(target is node.target and same and data is meta and data.data == node.meta)

    one_pass._fx = made
    try:
        one_pass.call_operator(node.target, *given, meta)
    except Exception:
        return False
    finally:
        del one_pass._fx
    return asked == [True]


def _asks_operators(kind: type) -> bool:
    """Whether of what passes of a kind do while they trace, `call_operator` alone is their own."""
    from executorch.exir.pass_base import ExportPass

    own = {"call_operator", "call", "requires", "ensures"}
    hooks = (name for name in dir(ExportPass) if not name.startswith(("__", "_abc")) and name not in own)
    return all(getattr(kind, hook) is getattr(ExportPass, hook) for hook in hooks)


@contextmanager
def shortcuts() -> Iterator[None]:
    """Take all of them in this scope."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir.pass_base import _ExportPassBase

    with ExitStack() as scope:
        for module in (torch._export.utils, torch.export.exported_program, torch.export.decomp_utils):
            scope.enter_context(patch.object(module, "_collect_all_valid_cia_ops", composite_operators))
        scope.enter_context(patch.object(torch.export.exported_program, _override.__name__, override))
        scope.enter_context(patch.object(torch.export.exported_program, _decompose.__name__, decompose))
        scope.enter_context(patch.object(GraphModule, "recompile", recompile))
        scope.enter_context(patch.object(GraphModule, "_code", property(_code, _set_code), create=True))
        scope.enter_context(patch.object(_ExportPassBase, "call", trace_of_changes(_ExportPassBase.call)))
        # where nodes come from, which errors would tell, is copied whole at each step: a list of what is never changed
        shallow = SimpleNamespace(deepcopy=copy.copy, copy=copy.copy)
        scope.enter_context(patch.object(torch.fx.traceback, "copy", shallow))
        # looks through the sources of the whole call stack for a deprecated caller, to warn of it
        scope.enter_context(patch.object(XnnpackPartitioner, "_check_if_called_from_to_backend", lambda self: False))
        yield
