"""Faults of a backend's config. The faulty config is enumerated and run, and compared with torch's own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn
from torch.ao.quantization import backend_config as torchs
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, ObservationType

from conformance.cases.claims import backend as registered
from conformance.cases.claims import claims_of
from conformance.cases.runs import runs as runs_of
from conformance.configs import dtypes, families
from conformance.configs.names import config_pattern, pattern_name
from conformance.configs.parity import drift
from conformance.configs.registry import BACKENDS

from .fault import Alarms, Fault, alarms_of

OWN = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
NEITHER = ObservationType.INPUT_OUTPUT_NOT_OBSERVED

Change = Callable[[BackendConfig], BackendConfig]


def entry_of(config: BackendConfig, name: str) -> BackendPatternConfig:
    return next(entry for entry in config.configs if pattern_name(config_pattern(entry)) == name)


def with_entries(config: BackendConfig, entries: list[BackendPatternConfig]) -> BackendConfig:
    return BackendConfig(config.name).set_backend_pattern_configs(entries)


def changed(name: str, **fields: Any) -> Change:
    """Change fields of one entry."""

    def change(config: BackendConfig) -> BackendConfig:
        entry = entry_of(config, name)
        for field, value in fields.items():
            assert hasattr(entry, field)
            setattr(entry, field, value)
        return config

    return change


def dropped(*names: str) -> Change:
    return lambda config: with_entries(
        config, [entry for entry in config.configs if pattern_name(config_pattern(entry)) not in names]
    )


def exchanged(first: str, second: str) -> Change:
    """Exchange two entries."""

    def change(config: BackendConfig) -> BackendConfig:
        first_entry, second_entry = entry_of(config, first), entry_of(config, second)
        places = {id(first_entry): second_entry, id(second_entry): first_entry}
        return with_entries(config, [places.get(id(entry), entry) for entry in config.configs])

    return change


def added(entry: Callable[[], BackendPatternConfig]) -> Change:
    """Add an entry. It replaces the present one of the same pattern."""
    return lambda config: with_entries(config, [*config.configs, entry()])


def fault(
    name: str,
    caught: str,
    backend: str,
    change: Change,
    *cases_: str,
    survives: str = "",
) -> Fault:
    """A faulty config and the cases that could notice it, as ids without the backend's name.

    A case may exist only in the original config or only in the faulty one.
    """

    def alarms(folder: Path) -> Alarms:
        config = change(BACKENDS[backend].factory())
        theirs = getattr(torchs, f"get_{backend}_backend_config")()
        parity = {"parity"} if drift(config, theirs) else set()
        ids = [f"{backend}/{case}@{backend}" for case in cases_]
        patterns = {case.partition("/")[0] for case in cases_}
        claims = tuple(claim for claim in claims_of(backend, config) if claim.pattern in patterns)
        faulty = replace(registered(backend), config=config, claims=claims)
        runs = [run for run in runs_of(faulty, [backend]) if run.id in ids]
        return Alarms(parity | (alarms_of(runs) if runs else set()))

    return Fault("configs", name, caught, alarms, tuple(f"{backend}/{case}@{backend}" for case in cases_), survives)


def static(
    pattern: str, variant: str = "default", dtype: str = "quint8", flow: str = "ptq", profile: str = "exact"
) -> str:
    return f"{pattern}/static-{dtype}/{flow}/{variant}/{profile}"


LINEAR = "nn.Linear"
RELU = static("nn.ReLU")
DENSE = static(LINEAR)
SYMMETRIC = static(LINEAR, dtype="qint8")
FUSED = static("nn.Linear+nn.ReLU")
NORMED = static("nn.Conv2d+nn.BatchNorm2d+nn.ReLU")

ENTRIES = [
    fault("an entry is dropped", "parity", "fbgemm", dropped("nn.ReLU6"), static("nn.ReLU6")),
    fault("every entry is dropped", "parity", "fbgemm", lambda config: BackendConfig("fbgemm"), DENSE),
    fault(
        "the entry of a QAT module is dropped",
        "lowered numerics observed parity reference",
        "fbgemm",
        dropped("nnqat.Linear"),
        static("nnqat.Linear", flow="qat"),
        static(LINEAR, flow="qat"),
    ),
    fault(
        "the entry of a fused module is dropped",
        "lowered numerics observed parity reference",
        "fbgemm",
        dropped("nni.LinearReLU"),
        FUSED,
    ),
    fault(
        "the entry of a root module is dropped",
        "lowered numerics observed parity reference",
        "fbgemm",
        dropped(LINEAR),
        FUSED,
        static("nn.Linear+nn.BatchNorm1d"),
    ),
    fault(
        "an entry is duplicated with fewer dtype configs",
        "parity",
        "fbgemm",
        added(lambda: families.entry(nn.Linear, (dtypes.STATIC_QUINT8_WEIGHTED,))),
        DENSE,
        "nn.Linear/dynamic-quint8/ptq/default/exact",
    ),
    fault(
        "an entry is duplicated with another observation type",
        "golden parity",
        "fbgemm",
        added(lambda: families.entry(nn.ReLU, (dtypes.STATIC_QUINT8,), OWN)),
        RELU,
    ),
    fault("an extra entry", "parity", "fbgemm", added(lambda: families.entry(nn.SiLU, (dtypes.STATIC_QUINT8,))), DENSE),
    fault(
        "two entries are exchanged",
        "parity",
        "fbgemm",
        exchanged("nn.Linear", "nnqat.Linear"),
        DENSE,
        static("nnqat.Linear", flow="qat"),
    ),
    fault(
        "a pattern precedes a longer one",
        "parity",
        "fbgemm",
        exchanged("nn.Conv2d+nn.BatchNorm2d", "nn.Conv2d+nn.BatchNorm2d+nn.ReLU"),
        NORMED,
        static("nn.Conv2d+nn.BatchNorm2d"),
    ),
    fault("the config has another name", "parity", "fbgemm", lambda config: config.set_name("x86"), DENSE),
    fault(
        "the config is another backend's",
        "parity",
        "qnnpack",
        lambda config: BACKENDS["fbgemm"].factory(),
        DENSE,
        "nn.Linear/static-qint8/ptq/default/exact",
    ),
]

OBSERVATIONS = [
    fault("a layer shares its observer", "golden parity", "fbgemm", changed(LINEAR, observation_type=SHARED), DENSE),
    fault("a layer is not observed", "parity", "fbgemm", changed(LINEAR, observation_type=NEITHER), DENSE),
    fault("ReLU has an observer of its own", "golden parity", "fbgemm", changed("nn.ReLU", observation_type=OWN), RELU),
    fault("ReLU is not observed", "golden parity", "fbgemm", changed("nn.ReLU", observation_type=NEITHER), RELU),
    fault(
        "pooling has an observer of its own",
        "golden parity",
        "fbgemm",
        changed("nn.MaxPool2d", observation_type=OWN),
        static("nn.MaxPool2d"),
    ),
    fault(
        "concatenation has an observer of its own",
        "golden parity",
        "fbgemm",
        changed("torch.cat", observation_type=OWN),
        static("torch.cat"),
    ),
    fault(
        "a fixed-qparams function shares its observer",
        "golden parity",
        "fbgemm",
        changed("nn.Sigmoid", observation_type=SHARED),
        static("nn.Sigmoid"),
        static("nn.Sigmoid", "in_network"),
    ),
    fault(
        "the size of a tensor is observed",
        "observed parity",
        "fbgemm",
        changed("Tensor.size", observation_type=OWN),
        static("Tensor.size"),
        static("Tensor.size", "in_network"),
    ),
    fault(
        "two tensors share an observer",
        "golden parity",
        "fbgemm",
        changed("torch.add", _num_tensor_args_to_observation_type={0: OWN, 1: SHARED, 2: SHARED}),
        static("torch.add"),
    ),
    fault(
        "the sum with a number is observed",
        "golden numerics parity",
        "fbgemm",
        changed("torch.add", _num_tensor_args_to_observation_type={0: OWN, 1: OWN, 2: OWN}),
        static("torch.add", "scalar"),
    ),
    fault(
        "observation types ignore the number of tensors",
        "golden numerics parity",
        "fbgemm",
        changed("torch.mul", _num_tensor_args_to_observation_type={}),
        static("torch.mul", "scalar"),
        static("torch.mul"),
    ),
    fault(
        "observation types by number of tensors are one off",
        "golden numerics parity",
        "fbgemm",
        changed("torch.add", _num_tensor_args_to_observation_type={1: OWN, 2: SHARED, 3: OWN}),
        static("torch.add"),
        static("torch.add", "scalar"),
    ),
]

FAULTS = [*ENTRIES, *OBSERVATIONS]
