"""torch.ao's own functions with less repeated work: the shortcuts `tables` and `conversion`, and QConfigs on a device for
`copies`.

torch is changed in place by `replace_functions`; a shortcut that is switched off leaves torch's own behaviour.
"""

import copy
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial, wraps
from importlib import import_module
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch.ao.quantization.quantize_fx  # noqa: F401  (its import completes torch.ao.quantization)
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, utils
from torch.ao.quantization.fx import fuse_handler, quantize_handler
from torch.fx import GraphModule

from conformance.shortcuts import enabled

# packages of torch have functions of the same names
convert: Any = import_module("torch.ao.quantization.fx.convert")
fuse: Any = import_module("torch.ao.quantization.fx.fuse")
prepare: Any = import_module("torch.ao.quantization.fx.prepare")
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


MOST_HANDLERS = 1024
"""Classes of quantize handlers that are kept: two configs' worth, and what configs without an entry add to them."""


def _handlers_kept(create: Callable[..., type]) -> Callable[..., type]:
    """`_get_quantize_handler_cls`, which creates a class for each entry of a config: configs share those of equal entries."""
    classes: dict[tuple[Any, ...], tuple[type, Any, Any]] = {}

    @wraps(create)
    def handler(observation_type: Any, dtype_configs: Any, observation_types: Any) -> type:
        if not enabled("tables"):
            return create(observation_type, dtype_configs, observation_types)
        key = observation_type, id(dtype_configs), id(observation_types)
        # with the arguments, so that no others get their ids; the last ones asked for come last
        kept = classes.pop(key, None) or (
            create(observation_type, dtype_configs, observation_types),
            dtype_configs,
            observation_types,
        )
        if len(classes) >= MOST_HANDLERS:
            del classes[next(iter(classes))]
        classes[key] = kept
        return kept[0]

    return handler


def derive_tables(config: BackendConfig) -> None:
    """Derive every table from a config, for the children of this process to share."""
    if enabled("tables"):
        with suppress(Exception), _tables_kept():  # what raises here raises in a run as well, which reports it
            for owner, name in TABLES:
                getattr(owner, name)(config)


Replaced: TypeAlias = tuple[Any, str, Callable[[Any], Any]]
"""The module that defines a function of torch, its name, and what makes its replacement from it."""


@cache
def _replacement(owner: Any, name: str, replaced: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A function of torch and what replaces it, the same one each time."""
    own = getattr(owner, name)
    return own, replaced(own)


def _replace(functions: Iterable[Replaced], *, back: bool = False) -> None:
    """Replace functions of torch in every module of torch that has imported them, or put them `back`."""
    modules = [module for name, module in [*sys.modules.items()] if name.startswith("torch.ao.")]
    for owner, name, replaced in functions:
        own, replacement = _replacement(owner, name, replaced)
        before, after = (replacement, own) if back else (own, replacement)
        for module in modules:
            if getattr(module, name, None) is before:
                setattr(module, name, after)


KEEPING: tuple[Replaced, ...] = (
    *((*table, _kept) for table in TABLES),
    (quantize_handler, "_get_quantize_handler_cls", _handlers_kept),
)
"""torch's functions that derive tables, with what replaces each."""


@contextmanager
def _tables_kept() -> Iterator[None]:
    """In this scope, tables are kept; behind it, the functions that derive them are what they were before."""
    owner, name, replaced = KEEPING[0]
    already = getattr(owner, name) is _replacement(owner, name, replaced)[1]
    if not already:
        _replace(KEEPING)
    try:
        yield
    finally:
        if not already:
            _replace(KEEPING, back=True)


MOST_QCONFIGS = 64
"""QConfigs of which those on a device are kept."""


def _with_device(qconfig: Any, placed: Any) -> Any:
    """A QConfig placed on a device by constructors that know it: torch's look for it in all tensors of a module each time."""
    for own, constructor in zip(qconfig, placed, strict=True):
        if constructor is not own:
            find = constructor.callable_args["factory_kwargs"]
            constructor.callable_args["factory_kwargs"] = partial(copy.copy, find())
    return placed


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
            results[key] = (
                qconfig,
                _with_device(qconfig, on_device(qconfig, module)),
            )  # which is kept, so that no other gets its id
        return results[key][1]

    return kept


def lowered(prepared: GraphModule, reference: GraphModule) -> GraphModule:
    """Lower the reference model of a calibrated one for the selected engine, as `convert_fx` does with the one it makes.

    The reference model, which has its QConfigs still, is changed.
    """
    observed = prepared.meta["_observed_graph_module_attrs"]
    model: GraphModule = convert.lower_to_fbgemm(reference, observed.node_name_to_qconfig, observed.node_name_to_scope)
    convert._remove_qconfig(model)
    model.delete_all_unused_submodules()
    return model


def replace_functions() -> None:
    """Replace torch's functions in this process, for good."""
    _replace((*KEEPING, (qconfig, "_add_module_to_qconfig_obs_ctr", _on_device_kept)))
