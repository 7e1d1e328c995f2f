"""Faults of the oracle, which goldens and the typical profile are made with."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.execution import batch
from conformance.goldens.regenerate import check, recompute
from conformance.goldens.store import Store

from . import fault
from .fault import Alarms, Fault, Instead, alarms_of, all_of, case

LINEAR = case("nn.Linear")
ORACLE = importlib.import_module("conformance.oracle.evaluate")
ARITHMETIC = importlib.import_module("conformance.oracle.arithmetic")
RECURRENT = importlib.import_module("conformance.oracle.recurrent")


def oracle(
    name: str, caught: str, attribute: str, lie: Any, *runs: str, owner: Any = ORACLE, survives: str = ""
) -> Fault:
    """A fault of the oracle: `golden check` recomputes with it, runs are held to what `golden update` then writes, and those
    of the typical profile ask it themselves."""

    def alarms(folder: Path) -> Alarms:
        subjects = [fault.run(run) for run in runs]
        batch.warm_up()
        exact = [run for run in subjects if run.profile == "exact"]
        with all_of([Instead(owner, attribute, lie).put_in()]):
            made = recompute(exact)
            found = {"golden"} if [*check(fault.SELECTION.store, made, whole=False)] else set()
            store = Store(folder / "golden")
            store.write(made)
            return Alarms(found | alarms_of(subjects, Store(folder / "golden")))

    return Fault("oracle", name, caught, alarms, tuple(runs), survives)


def with_result(change: Callable[[Any], Any]) -> Any:
    return lambda honest: lambda *given, **options: change(honest(*given, **options))


def moved(codes: Any) -> Any:
    return type(codes)(codes.qparams, codes.position, codes.low + 1, codes.high + 1)


def everywhere_tied(honest: Any) -> Any:
    return lambda values, qparams, band=0.5, **options: honest(values, qparams, 0.49, **options)


def of_scale(factor: float) -> Any:
    return with_result(lambda q: type(q)(q.grid, q.scale * factor, q.zero_point))


TYPICAL = case("nn.Linear", profile="typical")
FAULTS = [
    oracle("codes are one up", "golden numerics reference", "quantize", with_result(moved), LINEAR, TYPICAL),
    oracle("everything is a tie", "golden", "quantize", everywhere_tied, LINEAR, TYPICAL),
    oracle(
        "batch norm is not folded",
        "golden numerics reference",
        "folded",
        lambda honest: lambda layer, norm: (layer.weight, layer.bias),
        case("nn.Conv2d+nn.BatchNorm2d"),
        case("nn.Conv2d+nn.BatchNorm2d", profile="typical"),
    ),
    oracle(
        "weights are not quantized",
        "golden numerics reference",
        "quantized_weight",
        lambda honest: lambda weight, qparams: weight.double(),
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
        "the bias is left out",
        "golden numerics reference",
        "apply",
        lambda honest: lambda layer, weight, bias, x, *rest, **named: honest(layer, weight, None, x, *rest, **named),
        LINEAR,
        TYPICAL,
    ),
    oracle(
        "gates of a GRU are exchanged",
        "golden numerics reference",
        "_step",
        lambda honest: (
            lambda kind, given, state, recurrent, squash: honest(kind, given.flip(-1), state, recurrent, squash)
        ),
        case("nn.GRU", dtypes="dynamic-float16"),
        owner=RECURRENT,
    ),
]
