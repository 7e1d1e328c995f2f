"""The only module that calls torch.ao's FX API: prepare, calibrate, convert to the reference model, lower."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.ao.quantization.backend_config import BackendConfig
from torch.ao.quantization.quantize_fx import (
    _convert_to_reference_decomposed_fx,
    convert_fx,
    convert_to_reference_fx,
    prepare_fx,
    prepare_qat_fx,
)
from torch.fx import GraphModule

from conformance.cases.runs import Run

from .build import Subject


def prepare(given: Subject, config: BackendConfig) -> GraphModule:
    """Fuse, swap QAT modules, and insert observers. The model is copied first: torch's prepare changes it."""
    entry = prepare_qat_fx if given.run.flow == "qat" else prepare_fx
    return entry(copy.deepcopy(given.model), given.mapping, given.calibration, backend_config=config)


def calibrate(prepared: GraphModule, given: Subject) -> None:
    """Show the data to the observers; batch norm statistics stay as they are, or they would not be dyadic."""
    modules: list[Any] = [module for module in prepared.modules() if hasattr(module, "freeze_bn_stats")]
    for module in modules:
        module.freeze_bn_stats()
    with torch.no_grad():
        prepared(*(x.clone() for x in given.calibration))
    prepared.eval()


def reference(prepared: GraphModule, config: BackendConfig) -> GraphModule:
    """Return the reference model (dequantize, float op, quantize) of a calibrated one."""
    return convert_to_reference_fx(copy.deepcopy(prepared), backend_config=config)


def lower(prepared: GraphModule, config: BackendConfig) -> GraphModule:
    """Return the model with the quantized kernels of the engine in scope. `prepared` is not changed."""
    return convert_fx(copy.deepcopy(prepared), backend_config=config)


def decomposed(prepared: GraphModule, config: BackendConfig) -> GraphModule:
    """Return the reference model of a calibrated one in terms of `quantized_decomposed` operators, which can be exported."""
    return _convert_to_reference_decomposed_fx(copy.deepcopy(prepared), backend_config=config)


def without(config: BackendConfig, run: Run) -> Iterator[BackendConfig]:
    """Yield copies of a config without the run's claim: without the dtype config, then without the whole entry.

    torch asks neither a fusion's entry nor, for qat, a float module's for its dtypes: only the second can matter there.
    """
    rest = [dtypes for dtypes in run.claim.entry.dtype_configs if dtypes is not run.claim.dtypes]
    asked = run.claim.entry.fuser_method is None and not (run.flow == "qat" and run.claim.entry.qat_module)
    if rest and asked:
        entry = copy.copy(run.claim.entry).set_dtype_configs(rest)
        entries = [entry if e is run.claim.entry else e for e in config.configs]
        yield BackendConfig(config.name).set_backend_pattern_configs(entries)
    entries = [entry for entry in config.configs if entry is not run.claim.entry]
    yield BackendConfig(config.name).set_backend_pattern_configs(entries)


@contextmanager
def quiet() -> Iterator[list[warnings.WarningMessage]]:
    """Keep torch's many warnings off the terminal; they are returned instead."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
