"""Calls of torch.ao's FX API: prepare, calibrate, convert to a reference model, lower. No other module calls it."""

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping
from torch.ao.quantization.backend_config import BackendConfig
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig
from torch.ao.quantization.fx.utils import assert_and_get_unique_device
from torch.ao.quantization.quantize_fx import (
    _convert_to_reference_decomposed_fx,
    convert_fx,
    convert_to_reference_fx,
    prepare_fx,
    prepare_qat_fx,
)
from torch.fx import GraphModule, Node

from conformance.cases.runs import Run
from conformance.cases.sources import untraced
from conformance.shortcuts import enabled

from .build import Subject
from .correspondence import Matches, equivalents, matches_recorded, replacements_recorded
from .graph_modules import code_postponed, with_code
from .torchs import lowered


@dataclass
class _Settled:
    """A calibrated model that changes no more: the reference model to lower, once there is one, and how often it will be."""

    lowerings: int
    config: BackendConfig | None = None
    unlowered: GraphModule | None = None


_settled: WeakKeyDictionary[GraphModule, _Settled] = WeakKeyDictionary()


def prepare(subject: Subject, config: BackendConfig) -> GraphModule:
    """Return a copy of the model with fused modules, QAT modules and observers. The model itself is not changed."""
    flow = prepare_qat_fx if subject.run.flow == "qat" else prepare_fx
    return _prepared(flow, subject.model, subject.mapping, subject.calibration, config, _custom(subject.run))


def _custom(run: Run) -> PrepareCustomConfig | None:
    """What `prepare_fx` has to know about the modules of a pattern, if anything."""
    classes = [one for _, one in untraced(run.claim)]
    return PrepareCustomConfig().set_non_traceable_module_classes(classes) if classes else None


def _prepared(
    flow: Any,
    model: nn.Module,
    mapping: Any,
    inputs: Sequence[Any],
    config: BackendConfig,
    custom: PrepareCustomConfig | None = None,
) -> GraphModule:
    own = copy.deepcopy(model)  # before code is postponed, which FX could not trace if the model is a graph itself
    with code_postponed(), _without_stack_traces():
        return with_code(flow(own, mapping, tuple(inputs), custom, backend_config=config))


def prepare_network(
    model: nn.Module,
    mapping: QConfigMapping,
    inputs: Sequence[Any],
    config: BackendConfig,
    matches: Matches,
    custom: PrepareCustomConfig | None = None,
) -> GraphModule:
    """Return a copy of a float model in eval mode with fused modules and observers. `matches` gets the patterns that
    match."""
    with matches_recorded(matches):
        prepared = _prepared(prepare_fx, model, mapping, inputs, config, custom)
    assert_and_get_unique_device.cache_clear()  # torch keeps every model that it was asked about
    return prepared


def lower_network(calibrated: GraphModule, config: BackendConfig) -> tuple[GraphModule, GraphModule, dict[Node, Node]]:
    """Return the reference model of a calibrated one, the model lowered from it for the selected engine, and for each node of
    that one the reference node that has the same value. `calibrated` is not changed."""
    with code_postponed():
        # lowering reads QConfigs, which a reference model for users would lack
        unlowered = convert_to_reference_fx(copy.deepcopy(calibrated), _remove_qconfig=False, backend_config=config)
        with replacements_recorded() as taken:
            model = lowered(calibrated, copy.deepcopy(unlowered))
    return with_code(unlowered), with_code(model), equivalents(model, unlowered, taken)


def calibrate(prepared: GraphModule, subject: Subject) -> None:
    """Run the calibration data through the observers, then switch to eval mode.

    Batch norm statistics are frozen, because updated ones would not be dyadic.
    """
    modules: list[Any] = [module for module in prepared.modules() if hasattr(module, "freeze_bn_stats")]
    for module in modules:
        module.freeze_bn_stats()
    with torch.no_grad():
        prepared(*(x.clone() for x in subject.calibration))
    prepared.eval()


def settle(calibrated: GraphModule, lowerings: int) -> None:
    """Declare that a calibrated model changes no more and will be lowered so many times, so that it is converted once."""
    if enabled("conversion"):
        _settled[calibrated] = _Settled(lowerings)


def reference(prepared: GraphModule, config: BackendConfig, *, consumed: bool = False) -> GraphModule:
    """Return the reference model (dequantize, float operator, quantize) of a calibrated one, which is not changed unless
    `consumed`."""
    with code_postponed():
        model = _converted(prepared, config, consumed=consumed)
        if prepared in _settled:
            _settled[prepared].config, _settled[prepared].unlowered = config, copy.deepcopy(model)
    return with_code(model)


def lower(prepared: GraphModule, config: BackendConfig) -> GraphModule:
    """Return the model with quantized kernels of the selected engine. `prepared` is not changed."""
    with code_postponed():
        if (settled := _settled.get(prepared)) is None:
            return with_code(convert_fx(copy.deepcopy(prepared), backend_config=config))
        if settled.unlowered is None or settled.config is not config:
            settled.config, settled.unlowered = config, _converted(prepared, config)
        model, settled.lowerings = settled.unlowered, settled.lowerings - 1
        if settled.lowerings > 0:
            model = copy.deepcopy(model)
        else:
            settled.unlowered = None
        return with_code(lowered(prepared, model))


def _converted(prepared: GraphModule, config: BackendConfig, *, consumed: bool = False) -> GraphModule:
    # lowering reads QConfigs, so a model that may be lowered keeps them
    remove = not enabled("conversion")
    model = prepared if consumed else copy.deepcopy(prepared)
    return convert_to_reference_fx(model, _remove_qconfig=remove, backend_config=config)


def decomposed(prepared: GraphModule, config: BackendConfig) -> GraphModule:
    """Return the reference model of a calibrated one with `quantized_decomposed` operators, which torch.export supports."""
    return _convert_to_reference_decomposed_fx(copy.deepcopy(prepared), backend_config=config)


def without(config: BackendConfig, run: Run) -> Iterator[BackendConfig]:
    """Yield copies of a config without the run's claim: first without its dtype config, then without its whole entry.

    The first is left out where torch ignores the dtype configs of the entry: for a fusion, and for a float module in QAT.
    """
    rest = [dtypes for dtypes in run.claim.entry.dtype_configs if dtypes is not run.claim.dtypes]
    effective = run.claim.entry.fuser_method is None and not (run.flow == "qat" and run.claim.entry.qat_module)
    if rest and effective:
        entry = copy.copy(run.claim.entry).set_dtype_configs(rest)
        entries = [entry if e is run.claim.entry else e for e in config.configs]
        yield BackendConfig(config.name).set_backend_pattern_configs(entries)
    entries = [entry for entry in config.configs if entry is not run.claim.entry]
    yield BackendConfig(config.name).set_backend_pattern_configs(entries)


@contextmanager
def _without_stack_traces() -> Iterator[None]:
    """In this scope, FX symbolizes no Python stack at every node, for which torch imports its compiler: a second."""
    if not hasattr(torch.fx.config, "do_not_emit_stack_traces"):  # torch 2.10
        yield
        return
    before = torch.fx.config.do_not_emit_stack_traces
    torch.fx.config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        torch.fx.config.do_not_emit_stack_traces = before


@contextmanager
def quiet() -> Iterator[list[warnings.WarningMessage]]:
    """Record warnings in this scope instead of printing them. Yields the list of recorded warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
