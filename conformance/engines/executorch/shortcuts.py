"""Optimizations of lowering in torch and ExecuTorch: the same programs, byte by byte, in a fifth of the time.

Lowering a model of one operator runs some forty passes, which spend most of their time on work that does not depend on the
model. Each function here replaces one such piece of work in the scope of a lowering. Its docstring states the share of the
time that it saves. tests/engines/test_executorch.py compares programs that are lowered with and without them.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch._export.utils
import torch.export.exported_program
import torch.fx.traceback
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node, map_arg
from torch.fx.graph import _PyTreeCodeGen
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils._pytree import tree_leaves

from conformance.engines.decompositions import tables_once

_recompile = GraphModule.recompile


def recompile(self: GraphModule) -> None:
    """Defer code generation for a graph until the code is called or read (a fifth of the time).

    Between passes nothing does either.
    """
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
_preserve = torch._export.utils._special_op_to_preserve_cia
DECOMPOSED = "_decomposed"


def decompose(
    self: ExportedProgram, *, cia_to_decomp: dict[Any, Any], python_decomp_table: dict[Any, Any], **options: Any
) -> ExportedProgram:
    """Skip the decomposition of a program that is already decomposed with respect to the tables (a sixth of the time).

    Lowering decomposes three times: to make the program functional, and then without and with the operators that the
    partitioner preserves.
    """

    def is_final(node: Node) -> bool:
        if node.op != "call_function":
            return True
        composite = cia_to_decomp.get(node.target, _preserve) is not _preserve
        return isinstance(node.target, OpOverload) and not composite and node.target not in python_decomp_table

    if hasattr(self.graph, DECOMPOSED) and all(map(is_final, self.graph.nodes)):
        return self
    decomposed: ExportedProgram = _decompose(
        self, cia_to_decomp=cia_to_decomp, python_decomp_table=python_decomp_table, **options
    )
    setattr(decomposed.graph, DECOMPOSED, True)
    return decomposed


TRACED = "_as_traced"


def trace_of_changes(trace: Callable[[Any, GraphModule], PassResult]) -> Callable[[Any, GraphModule], PassResult]:
    """Skip a pass that would retrace a graph without changing it, as most do (a sixth of the time)."""

    def call(self: Any, graph_module: GraphModule) -> PassResult:
        graph = graph_module.graph
        unchanged = getattr(graph, TRACED, None) == _content(graph)
        if unchanged and _overrides_only_operators(type(self)) and all(_keeps(self, node) for node in graph.nodes):
            return PassResult(graph_module, True)
        result = trace(self, graph_module)
        traced = result.graph_module.graph
        setattr(traced, TRACED, _content(traced))
        return result

    return call


def _content(graph: Graph) -> list[Any]:
    """Everything that a pass can change in a graph, to be compared. Fake tensors are compared by identity."""

    def content(node: Node) -> list[Any]:
        meta = {key: id(value) for key, value in node.meta.items()}
        return [node, node.target, _comparable((node.args, node.kwargs)), meta]

    return [content(node) for node in graph.nodes]


def _comparable(arguments: tuple[Sequence[Any], Mapping[str, Any]]) -> Any:
    """Arguments in a form to be compared: 1 differs from True, and a list equals an immutable list."""
    positional, keywords = arguments
    leaves = [(type(leaf), leaf) for leaf in tree_leaves((tuple(positional), dict(keywords)))]
    return len(positional), list(keywords), leaves


def _keeps(export_pass: Any, node: Node) -> bool:
    """Whether a pass keeps an operator unchanged.

    `call_operator` of the pass is called with the known shapes, while tracing would have every operator compute them again.
    """
    from executorch.exir.dialects.edge._ops import EdgeOpOverload
    from executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue

    if type(export_pass).call_operator is ExportPass.call_operator or node.op in ("placeholder", "output"):
        return True
    if node.op != "call_function":
        return False
    if not isinstance(node.target, OpOverload | EdgeOpOverload):
        return True  # not an operator

    def known(argument: Node) -> Any:
        return ProxyValue(argument.meta["val"], argument)

    arguments = map_arg((node.args, node.kwargs), known)
    meta = NodeMetadata(node.meta)
    unchanged: list[bool] = []

    def emit(kind: str, target: Any, args: Any, kwargs: Any, data: Any) -> Any:
        same = _comparable(arguments) == _comparable((args, kwargs))
        unchanged.append(target is node.target and same and data is meta and data.data == node.meta)

    export_pass._fx = emit
    try:
        export_pass.call_operator(node.target, *arguments, meta)
    except Exception:
        return False
    finally:
        del export_pass._fx
    return unchanged == [True]


def _overrides_only_operators(kind: type) -> bool:
    """Whether `call_operator` is the only tracing hook that a class of passes overrides."""
    from executorch.exir.pass_base import ExportPass

    own = {"call_operator", "call", "requires", "ensures"}
    hooks = (name for name in dir(ExportPass) if not name.startswith(("__", "_abc")) and name not in own)
    return all(getattr(kind, hook) is getattr(ExportPass, hook) for hook in hooks)


@contextmanager
def shortcuts() -> Iterator[None]:
    """Apply all optimizations in this scope."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir.pass_base import _ExportPassBase

    with ExitStack() as scope:
        scope.enter_context(tables_once())
        scope.enter_context(patch.object(torch.export.exported_program, _decompose.__name__, decompose))
        scope.enter_context(patch.object(GraphModule, "recompile", recompile))
        scope.enter_context(patch.object(GraphModule, "_code", property(_code, _set_code), create=True))
        scope.enter_context(patch.object(_ExportPassBase, "call", trace_of_changes(_ExportPassBase.call)))
        # the provenance of nodes, used in error messages, is deep-copied at each step although nothing changes it
        shallow = SimpleNamespace(deepcopy=copy.copy, copy=copy.copy)
        scope.enter_context(patch.object(torch.fx.traceback, "copy", shallow))
        # searches the source of the whole call stack for a deprecated caller, to warn about it
        scope.enter_context(patch.object(XnnpackPartitioner, "_check_if_called_from_to_backend", lambda self: False))
        yield
