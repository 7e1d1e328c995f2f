"""torch's own functions with less repeated work: the shortcuts `tables`, `patterns`, `code`, `copies`, `conversion`,
`tracing`, `observers` and `messages`.

torch is changed in place, once, when this module is imported; a shortcut that is switched off leaves torch's own behaviour.
"""

import copy
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, wraps
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

import torch.ao.quantization.quantize_fx  # its import completes torch.ao.quantization
from torch import nn
from torch.ao.quantization import QConfig
from torch.ao.quantization.backend_config import BackendConfig, utils
from torch.ao.quantization.fx import fuse_handler, quantize_handler
from torch.ao.quantization.utils import MatchAllNode
from torch.fx import Graph, GraphModule
from torch.nn.utils.parametrize import type_before_parametrizations

from conformance.shortcuts import enabled

# packages of torch have functions of the same names
convert: Any = import_module("torch.ao.quantization.fx.convert")
fuse: Any = import_module("torch.ao.quantization.fx.fuse")
prepare: Any = import_module("torch.ao.quantization.fx.prepare")
graph_module: Any = import_module("torch.fx.graph_module")
symbolic_trace: Any = import_module("torch.fx._symbolic_trace")
mappings: Any = import_module("torch.ao.quantization.fx.qconfig_mapping_utils")
fx_utils: Any = import_module("torch.ao.quantization.fx.utils")
ao_utils: Any = import_module("torch.ao.quantization.utils")
observer: Any = import_module("torch.ao.quantization.observer")
qconfig: Any = import_module("torch.ao.quantization.qconfig")

TABLES: tuple[tuple[Any, str], ...] = (
    (utils, "get_pattern_to_dtype_configs"),
    (utils, "get_qat_module_classes"),
    (utils, "get_fused_module_classes"),
    (utils, "get_pattern_to_input_type_to_index"),
    (utils, "get_root_module_to_quantized_reference_module"),
    (utils, "get_fuser_method_mapping"),
    (utils, "get_module_to_qat_module"),
    (utils, "get_fusion_pattern_to_root_node_getter"),
    (utils, "get_fusion_pattern_to_extra_inputs_getter"),
    (quantize_handler, "_get_pattern_to_quantize_handlers"),
    (fuse_handler, "_get_fusion_pattern_to_fuse_handler_cls"),
)
"""torch's functions that derive a table from a config, with the modules that define them."""


def _kept(derive: Callable[[BackendConfig], Any]) -> Callable[[BackendConfig], Any]:
    """A function of a config whose results are kept. A caller gets a copy, in case that it changes what it gets."""
    results: WeakKeyDictionary[BackendConfig, Any] = WeakKeyDictionary()

    @wraps(derive)
    def table(config: BackendConfig) -> Any:
        if not enabled("tables"):
            return derive(config)
        if config not in results:
            results[config] = derive(config)
        return copy.copy(results[config])

    return table


def derive_tables(config: BackendConfig) -> None:
    """Derive every table from a config, for the children of this process to share."""
    if enabled("tables"):
        with suppress(Exception):  # what raises here raises in a run as well, which reports it
            for owner, name in TABLES:
                getattr(owner, name)(config)


def _replace(owner: Any, name: str, replaced: Callable[[Any], Any]) -> None:
    """Replace a function of torch in every module of torch that has imported it."""
    own = getattr(owner, name)
    replacement = replaced(own)
    for module_name, module in [*sys.modules.items()]:
        if module_name.startswith("torch.ao.") and getattr(module, name, None) is own:
            setattr(module, name, replacement)


MOST_QCONFIGS = 64
"""QConfigs of which those on a device are kept."""


def _on_device_kept(on_device: Callable[..., Any]) -> Callable[..., Any]:
    """`_add_module_to_qconfig_obs_ctr`, which creates both observers of a QConfig to see whether they take a device."""
    results: dict[tuple[int, object], tuple[Any, Any]] = {}

    @wraps(on_device)
    def kept(qconfig: Any, module: nn.Module | None) -> Any:
        if qconfig is None or module is None or not enabled("copies"):
            return on_device(qconfig, module)
        devices = frozenset(x.device for x in (*module.parameters(), *module.buffers()))
        key = id(qconfig), devices
        if key not in results:
            if len(results) >= MOST_QCONFIGS:
                results.clear()
            results[key] = qconfig, on_device(qconfig, module)  # the QConfig is kept, so that no other gets its id
        return results[key][1]

    return kept


def _may_match(pattern: Any, called: frozenset[Any]) -> bool:
    """Whether a pattern may match a node of a graph in which these operators and classes of modules are called."""
    operator = pattern[0] if isinstance(pattern, tuple) else pattern
    return operator in called or (isinstance(operator, type) and issubclass(operator, MatchAllNode))


def _fewer(patterns: dict[Any, Any], graph: Graph, modules: Mapping[str, nn.Module]) -> dict[Any, Any]:
    """The patterns whose last operator is called in a graph, in the same order."""
    if not enabled("patterns"):
        return patterns
    called = frozenset(
        type_before_parametrizations(modules[str(node.target)]) if node.op == "call_module" else node.target
        for node in graph.nodes
    )
    return {pattern: value for pattern, value in patterns.items() if _may_match(pattern, called)}


def _graph_first(find: Callable[..., Any]) -> Callable[..., Any]:
    """`_find_matches` of prepare."""

    @wraps(find)
    def find_matches(graph: Graph, modules: dict[str, nn.Module], patterns: dict[Any, Any], *others: Any) -> Any:
        return find(graph, modules, _fewer(patterns, graph, modules), *others)

    return find_matches


def _root_first(find: Callable[..., Any]) -> Callable[..., Any]:
    """`_find_matches` of fusion."""

    @wraps(find)
    def find_matches(root: GraphModule, graph: Graph, patterns: dict[Any, Any]) -> Any:
        return find(root, graph, _fewer(patterns, graph, dict(root.named_modules())))

    return find_matches


_recompile = GraphModule.recompile
_postponed = 0


def _when_called(self: GraphModule, *inputs: Any, **options: Any) -> Any:
    """The `forward` of a graph module whose code is not generated yet."""
    _recompile(self)
    return self(*inputs, **options)


def _recompile_later(self: GraphModule) -> Any:
    if not _postponed or not enabled("code"):
        return _recompile(self)
    type(self).forward = _when_called
    return None


@contextmanager
def code_postponed() -> Iterator[None]:
    """In this scope, graph modules get their code when they are first called. `with_code` completes what leaves the scope."""
    global _postponed
    _postponed += 1
    try:
        yield
    finally:
        _postponed -= 1


def with_code(model: GraphModule) -> GraphModule:
    """The model itself, with its code."""
    for module in model.modules():
        if isinstance(module, GraphModule) and type(module).forward is _when_called:
            _recompile(module)
    return model


_deepcopy_graph_module = GraphModule.__deepcopy__
_GENERATED = ("_code", "_lineno_map", "_prologue_start", "_in_spec", "_out_spec")
"""The attributes that a graph module gets with its code."""


def _graph_module_copied(self: GraphModule, memo: dict[int, Any]) -> GraphModule:
    """A deep copy of a graph module, which has the code of the original."""
    with code_postponed():
        copied = _deepcopy_graph_module(self, memo)
    if not _postponed:
        for original, module in zip(self.modules(), copied.modules(), strict=True):
            if isinstance(module, GraphModule) and type(module).forward is _when_called:
                _take_code(module, original)
    return copied


def _take_code(module: GraphModule, original: nn.Module) -> None:
    """Give a copy of a graph module the code of the original, if that has any, or else its own."""
    if type(original).forward is _when_called or "_wrapped_call" not in vars(type(original)):
        _recompile(module)
        return
    vars(module).update({name: value for name, value in vars(original).items() if name in _GENERATED})
    kind: Any = type(module)
    kind.forward, kind.__call__ = type(original).forward, type(original).__call__
    kind._wrapped_call = graph_module._WrappedCall(kind, None)


@lru_cache(4096)
def _compiled(source: str) -> Any:
    """Generated code, compiled under a name by which `inspect` finds its source, for TorchScript."""
    return compile(source, graph_module._loader.cache(source, {}), "exec")


_exec_with_source = graph_module._exec_with_source


def _exec_once_compiled(source: str, namespace: dict[str, Any], co_fields: dict[str, Any] | None = None) -> None:
    """Execute generated code. Graph modules of the same source share its compiled form."""
    if enabled("code"):
        exec(_compiled(source), namespace)
    else:
        _exec_with_source(source, namespace, co_fields)


def _qconfig_copied(copied: QConfig, memo: dict[int, Any]) -> Any:
    if enabled("copies"):
        return copied
    return copy._reconstruct(copied, memo, *copied.__reduce_ex__(4))  # type: ignore[attr-defined]


def _ordered_copied(ordered: "OrderedDict[Any, Any]", memo: dict[int, Any]) -> Any:
    if not enabled("copies"):
        return copy._reconstruct(ordered, memo, *ordered.__reduce_ex__(4))  # type: ignore[attr-defined]
    memo[id(ordered)] = copied = OrderedDict[Any, Any]()
    for key, value in ordered.items():
        copied[copy.deepcopy(key, memo)] = copy.deepcopy(value, memo)
    return copied


_ATOMIC = {kind for kind, copied in copy._deepcopy_dispatch.items() if copied is copy._deepcopy_atomic} | {  # type: ignore[attr-defined]
    torch.dtype,
    torch.qscheme,
    torch.device,
}
_CONTAINERS = (dict, list, set, OrderedDict)


_PLAIN_STATE = {name: getattr(nn.Module, name, None) for name in ("__reduce_ex__", "__reduce__", "__getstate__")}
"""The methods of a module whose state is the dict of its attributes."""


def _value_copied(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in _ATOMIC:
        return value
    return kind() if kind in _CONTAINERS and not value else copy.deepcopy(value, memo)


def _module_copied(module: nn.Module, memo: dict[int, Any]) -> Any:
    """A deep copy of a module. Most attributes of a module are empty containers of hooks, for which torch's way is long."""
    kind = type(module)
    if not enabled("copies") or any(getattr(kind, name, None) is not plain for name, plain in _PLAIN_STATE.items()):
        return copy._reconstruct(module, memo, *module.__reduce_ex__(4))  # type: ignore[attr-defined]
    copied: Any = kind.__new__(kind)
    memo[id(module)] = copied
    state = {name: value for name, value in vars(module).items() if name != "_compiled_call_impl"}
    copied.__setstate__({name: _value_copied(value, memo) for name, value in state.items()})
    return copied


def lowered(prepared: GraphModule, reference: GraphModule) -> GraphModule:
    """Lower the reference model of a calibrated one for the selected engine, as `convert_fx` does with the one it makes.

    The reference model, which has its QConfigs still, is changed.
    """
    observed = prepared.meta["_observed_graph_module_attrs"]
    model: GraphModule = convert.lower_to_fbgemm(reference, observed.node_name_to_qconfig, observed.node_name_to_scope)
    convert._remove_qconfig(model)
    model.delete_all_unused_submodules()
    return model


def _selected(name: str) -> list[Callable[..., Any]]:
    """Have a method of nn.Module call the last of a list, and return the list, which starts with the method itself."""
    methods = [getattr(nn.Module, name)]

    def method(self: nn.Module, *inputs: Any, **options: Any) -> Any:
        return methods[-1](self, *inputs, **options)

    setattr(nn.Module, name, method)
    return methods


_PATCHED = {name: _selected(name) for name in ("__call__", "__getattr__")}
"""The methods of nn.Module that a trace patches. A class whose special method changes updates all its subclasses: a thousand,
and one more for each graph module."""


class _PatchedMethod(symbolic_trace._PatchedFnSetAttr):  # type: ignore[misc]
    """A patch of a class, as FX's patcher applies and reverts it."""

    @property
    def _methods(self) -> list[Callable[..., Any]] | None:
        return _PATCHED.get(self.fn_name) if self.frame_dict is nn.Module else None

    def patch(self) -> None:
        if self._methods is None or not enabled("tracing"):
            super().patch()
        else:
            self._methods.append(self.new_fn)

    def revert(self) -> None:
        if self._methods is not None and self.new_fn in self._methods:
            self._methods.remove(self.new_fn)
        else:
            super().revert()


READERS: tuple[tuple[Any, str], ...] = (
    (prepare, "_is_pattern_dtype_config_and_qconfig_supported_by_backend"),
    (mappings, "_is_qconfig_supported_by_dtype_configs"),
    (fx_utils, "_qconfig_satisfies_dtype_config_constraints"),
    (ao_utils, "get_qconfig_dtypes"),
    (ao_utils, "weight_dtype"),
    (qconfig, "_is_reuse_input_qconfig"),
)
"""torch's functions that create observers to read their dtypes and bounds, with the modules that define them."""

MOST_OBSERVERS = 256
"""Observers that are kept to be read."""

_create = observer._PartialWrapper.__call__
_readers = 0
_kept_observers: dict[int, tuple[Any, Any]] = {}


def _created(self: Any, *inputs: Any, **options: Any) -> Any:
    """The observer of a constructor: a new one, unless it is only read."""
    if not _readers or inputs or options:
        return _create(self, *inputs, **options)
    if id(self) not in _kept_observers:
        if len(_kept_observers) >= MOST_OBSERVERS:
            _kept_observers.clear()
        _kept_observers[id(self)] = self, _create(self)  # the constructor is kept, so that no other gets its id
    return _kept_observers[id(self)][1]


def _reading(read: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(read)
    def reader(*arguments: Any, **options: Any) -> Any:
        global _readers
        if not enabled("observers"):
            return read(*arguments, **options)
        _readers += 1
        try:
            return read(*arguments, **options)
        finally:
            _readers -= 1

    return reader


_error_message = graph_module._WrappedCall._generate_error_message


def _no_error_message(frame: Any) -> str:
    """What a graph module prints before it raises the error of its generated code."""
    return "" if enabled("messages") else str(_error_message(frame))


for _owner, _name in TABLES:
    _replace(_owner, _name, _kept)
for _owner, _name in READERS:
    _replace(_owner, _name, _reading)
observer._PartialWrapper.__call__ = _created
_replace(qconfig, "_add_module_to_qconfig_obs_ctr", _on_device_kept)
GraphModule.recompile = _recompile_later  # type: ignore[method-assign]
GraphModule.__deepcopy__ = _graph_module_copied  # type: ignore[method-assign]
graph_module._exec_with_source = _exec_once_compiled
copy._deepcopy_dispatch[QConfig] = _qconfig_copied  # type: ignore[attr-defined]
copy._deepcopy_dispatch[OrderedDict] = _ordered_copied  # type: ignore[attr-defined]
nn.Module.__deepcopy__ = _module_copied  # type: ignore[attr-defined]
prepare._find_matches = _graph_first(prepare._find_matches)
fuse._find_matches = _root_first(fuse._find_matches)
symbolic_trace._PatchedFnSetAttr = _PatchedMethod
graph_module._WrappedCall._generate_error_message = staticmethod(_no_error_message)
