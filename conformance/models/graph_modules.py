"""Graph modules and deep copies with less repeated work: the shortcuts `code`, `copies`, `tracing` and `messages`.

torch is changed in place by `replace_functions`; a shortcut that is switched off leaves torch's own behaviour.
"""

import copy
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization import QConfig
from torch.fx import GraphModule
from torch.fx.graph import CodeGen

from conformance.shortcuts import enabled

graph_module: Any = import_module("torch.fx.graph_module")
symbolic_trace: Any = import_module("torch.fx._symbolic_trace")

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
def _compiled(source: str, traced: tuple[tuple[str, Any], ...]) -> Any:
    """Generated code, compiled under a name by which `inspect` finds its source; `traced` says what it was traced from."""
    return compile(source, graph_module._loader.cache(source, {}, dict(traced)), "exec", dont_inherit=True)


_exec_with_source = graph_module._exec_with_source


def _exec_once_compiled(source: str, namespace: dict[str, Any], co_fields: dict[str, Any] | None = None) -> None:
    """Execute generated code. Graph modules of the same source share its compiled form."""
    if enabled("code"):
        exec(_compiled(source, tuple((co_fields or {}).items())), namespace)
    else:
        _exec_with_source(source, namespace, co_fields)


_call_with_known_options: Any = CodeGen._call_method_with_signature_check
_parameters = lru_cache(64)(inspect.signature)


def _called(self: CodeGen, method: Any, *inputs: Any, **options: Any) -> Any:
    """Call a method of a code generator with those of some options that it has. It has the same ones every time."""
    function = getattr(method, "__func__", None)
    if function is None or not enabled("code"):
        return _call_with_known_options(self, method, *inputs, **options)
    known = _parameters(function).parameters
    return method(*inputs, **{name: value for name, value in options.items() if name in known})


def _qconfig_copied(copied: QConfig, memo: dict[int, Any]) -> Any:
    if enabled("copies"):
        return copied
    return copy._reconstruct(copied, memo, *copied.__reduce_ex__(4))  # type: ignore[attr-defined]


def _ordered_copied(ordered: "OrderedDict[Any, Any]", memo: dict[int, Any]) -> Any:
    if not enabled("copies") or vars(ordered):  # a state_dict has its metadata as an attribute
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


_deepcopy_tensor = Tensor.__deepcopy__


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is nothing but values of its own, which fill its storage."""
    return (
        type(tensor) is Tensor
        and tensor.layout is torch.strided
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or vars(tensor))
        and 0 < tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        and not (torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack())
    )


def _tensor_copied(tensor: Tensor, memo: dict[Any, Any]) -> Tensor:
    """A deep copy of a tensor: a clone, unless that would lose anything, such as a storage shared with another tensor."""
    if enabled("copies") and _is_plain(tensor):
        storages, own = memo.setdefault("torch", {}), tensor.untyped_storage()._cdata
        if own not in storages and (copied := tensor.clone()).stride() == tensor.stride():
            memo[id(tensor)], storages[own] = copied, copied.untyped_storage()
            return copied
    return _deepcopy_tensor(tensor, memo)  # type: ignore[no-untyped-call, no-any-return]


_PATCHED: dict[str, list[Callable[..., Any]]] = {}
"""The methods of nn.Module that a trace patches, each with its patches, of which the last is called. A class whose special
method changes updates all its subclasses: a thousand, and one more for each graph module."""


def _select(name: str) -> None:
    """Have a method of nn.Module call the last of its patches."""
    methods = _PATCHED[name] = [getattr(nn.Module, name)]

    def method(self: nn.Module, *inputs: Any, **options: Any) -> Any:
        return methods[-1](self, *inputs, **options)

    setattr(nn.Module, name, method)


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


_wrapped_function = symbolic_trace._create_wrapped_func
_wrapped_once = lru_cache(256)(_wrapped_function)


def _function_wrapped(function: Any) -> Any:
    """A function of `math` as a trace patches it, which every trace does with all of them."""
    return (_wrapped_once if enabled("tracing") else _wrapped_function)(function)


_error_message = graph_module._WrappedCall._generate_error_message


def _no_error_message(frame: Any) -> str:
    """What a graph module prints before it raises the error of its generated code."""
    return "" if enabled("messages") else str(_error_message(frame))


def replace_functions() -> None:
    """Replace torch's functions in this process, for good."""
    for name in ("__call__", "__getattr__"):
        _select(name)
    GraphModule.recompile = _recompile_later  # type: ignore[method-assign]
    GraphModule.__deepcopy__ = _graph_module_copied  # type: ignore[method-assign]
    graph_module._exec_with_source = _exec_once_compiled
    copy._deepcopy_dispatch[QConfig] = _qconfig_copied  # type: ignore[attr-defined]
    copy._deepcopy_dispatch[OrderedDict] = _ordered_copied  # type: ignore[attr-defined]
    nn.Module.__deepcopy__ = _module_copied  # type: ignore[attr-defined]
    Tensor.__deepcopy__ = _tensor_copied  # type: ignore[method-assign, assignment]
    symbolic_trace._PatchedFnSetAttr = _PatchedMethod
    symbolic_trace._create_wrapped_func = _function_wrapped
    CodeGen._call_method_with_signature_check = _called  # type: ignore[method-assign]
    graph_module._WrappedCall._generate_error_message = staticmethod(_no_error_message)
