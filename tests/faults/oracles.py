"""Faults of the oracle, which computes the goldens and the expectations of the typical profile."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.execution import batch
from conformance.goldens.regenerate import check, recompute
from conformance.goldens.store import Store
from conformance.oracle import arithmetic, calibration, interpreter, recurrent

from . import fault
from .fault import Alarms, Fault, Replacement, alarms_of, all_of, case

LINEAR = case("nn.Linear")
EVALUATE = importlib.import_module("conformance.oracle.evaluate")  # the package binds the function to this name
MODULES = (arithmetic, EVALUATE, calibration, interpreter, recurrent)


def oracle(name: str, caught: str, attribute: str, replace: Any, *runs: str, survives: str = "") -> Fault:
    """A faulty function of the oracle, replaced in every module that binds it.

    `golden check` recomputes with it. Runs of the exact profile are compared with the goldens that `golden update` would
    write; those of the typical profile ask the oracle themselves.
    """

    def alarms(folder: Path) -> Alarms:
        subjects = [fault.run(run_id) for run_id in runs]
        batch.warm_up()
        exact = [run for run in subjects if run.profile == "exact"]
        owners = [module for module in MODULES if hasattr(module, attribute)]
        with all_of(Replacement(module, attribute, replace).applied() for module in owners):
            goldens = recompute(exact)
            golden_alarms = {"golden"} if [*check(fault.SELECTION.store, goldens, whole=False)] else set()
            Store(folder / "golden").write(goldens)
            return Alarms(golden_alarms | alarms_of(subjects, Store(folder / "golden")))

    return Fault("oracle", name, caught, alarms, tuple(runs), survives)


def with_result(change: Callable[[Any], Any]) -> Any:
    return lambda original: lambda *args, **options: change(original(*args, **options))


def moved(codes: Any) -> Any:
    return type(codes)(codes.qparams, codes.position, codes.low + 1, codes.high + 1)


def everywhere_tied(original: Any) -> Any:
    return lambda values, qparams, band=0.5, **options: original(values, qparams, 0.49, **options)


def of_scale(factor: float) -> Any:
    return with_result(lambda q: type(q)(q.grid, q.scale * factor, q.zero_point))


TYPICAL = case("nn.Linear", profile="typical")
FAULTS = [
    oracle("codes are one up", "golden numerics reference", "quantize", with_result(moved), LINEAR, TYPICAL),
    oracle("every element is a tie", "golden", "quantize", everywhere_tied, LINEAR, TYPICAL),
    oracle(
        "batch norm is not folded",
        "golden numerics reference",
        "folded",
        lambda original: lambda layer, norm: (layer.weight, layer.bias),
        case("nn.Conv2d+nn.BatchNorm2d"),
        case("nn.Conv2d+nn.BatchNorm2d", profile="typical"),
    ),
    oracle(
        "weights are not quantized",
        "golden numerics reference",
        "quantized_weight",
        lambda original: lambda weight, qparams: weight.double(),
        case("nn.Linear+nn.BatchNorm1d"),
        case("nn.Linear", profile="typical", backend="qnnpack"),
    ),
    oracle("scales are doubled", "golden numerics reference", "power_of_two_qparams", of_scale(2.0), LINEAR),
    oracle(
        "scales are an ulp off", "golden numerics reference", "power_of_two_qparams", of_scale(1 + 2.0**-23), LINEAR
    ),
    oracle(
        "dynamic scales are doubled",
        "golden numerics reference",
        "dynamic_qparams",
        of_scale(2.0),
        case("nn.Linear", dtypes="dynamic-quint8", backend="qnnpack"),
        case("nn.Linear", dtypes="dynamic-quint8", backend="qnnpack", profile="typical"),
    ),
    oracle(
        "the bias is skipped",
        "golden numerics reference",
        "apply",
        lambda original: (
            lambda layer, weight, bias, x, *state, **options: original(layer, weight, None, x, *state, **options)
        ),
        LINEAR,
        TYPICAL,
    ),
    oracle(
        "gates of a GRU are exchanged",
        "golden numerics reference",
        "_step",
        lambda original: (
            lambda kind, product, state, recurrent, squash: original(kind, product.flip(-1), state, recurrent, squash)
        ),
        case("nn.GRU", dtypes="dynamic-float16"),
    ),
]
