"""Runs of a config with a changed entry for the claim fail `matched` or `observed`."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.qat as nnqat
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, ObservationType

from conformance.checks.evidence import Outcome
from conformance.configs import dtypes
from conformance.models import fx
from tests.lies import DYNAMIC, LINEAR, LINEAR_QAT, LINEAR_RELU, POOLING, RELU, SIGMOID, failed, instead, judged
from tests.runs_by_id import run


def with_entry(name: str, change: Callable[[BackendPatternConfig], BackendPatternConfig]) -> dict[str, Outcome]:
    """Judge a run whose backend's config has a changed entry in place of the claim's own."""
    subject = run(name)
    changed = change(copy.copy(subject.claim.entry))
    entries = [changed if entry is subject.claim.entry else entry for entry in subject.backend.config.configs]
    config = BackendConfig("faulty").set_backend_pattern_configs(entries)
    rest = BackendConfig("rest").set_backend_pattern_configs([entry for entry in entries if entry is not changed])
    faulty = dataclasses.replace(subject, backend=dataclasses.replace(subject.backend, config=config))
    return judged(faulty, instead("without", lambda *_: iter([rest])))


@pytest.mark.parametrize("name", [LINEAR, LINEAR_QAT, LINEAR_RELU, RELU, SIGMOID])
def test_a_config_with_a_copy_of_its_entry_passes_every_check(name: str) -> None:
    assert failed(with_entry(name, lambda entry: entry)) == set()


@pytest.mark.parametrize("name", [LINEAR, LINEAR_QAT, LINEAR_RELU, RELU, SIGMOID, DYNAMIC])
def test_a_missing_entry_is_caught_by_matched(name: str) -> None:
    subject = run(name)
    (*_, rest) = fx.without(subject.backend.config, subject)
    faulty = dataclasses.replace(subject, backend=dataclasses.replace(subject.backend, config=rest))
    assert "matched" in failed(judged(faulty))


def test_an_entry_that_changes_nothing_is_caught_by_matched_alone() -> None:
    """As when another entry does the same; a second of the same pattern cannot be in one config."""
    subject = run(RELU)
    outcomes = judged(subject, instead("without", lambda *_: iter([subject.backend.config])))
    assert failed(outcomes) == {"matched"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (LINEAR, ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT),
        (RELU, ObservationType.INPUT_OUTPUT_NOT_OBSERVED),
        (POOLING, ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT),
    ],
)
def test_another_observation_type_is_caught_by_observed(name: str, kind: ObservationType) -> None:
    assert "observed" in failed(with_entry(name, lambda entry: entry.set_observation_type(kind)))


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        (LINEAR, dtypes.STATIC_QINT8_SYMMETRIC_WEIGHTED),
        (LINEAR, dtypes.DYNAMIC_FLOAT16),
        (LINEAR, dtypes.DYNAMIC_QUINT8),
        (DYNAMIC, dtypes.STATIC_QUINT8_WEIGHTED),
        (RELU, dtypes.STATIC_QINT8_SYMMETRIC),
    ],
)
def test_another_dtype_config_is_caught_by_observed(name: str, changed: Any) -> None:
    assert "observed" in failed(with_entry(name, lambda entry: entry.set_dtype_configs([changed])))


def test_another_fused_module_is_caught_by_observed() -> None:
    class Other(nni.LinearReLU):
        pass

    def fused(is_qat: bool, linear: nn.Linear, relu: nn.ReLU) -> Other:
        return Other(linear, relu)  # type: ignore[no-untyped-call]

    def change(entry: BackendPatternConfig) -> BackendPatternConfig:
        return entry.set_fused_module(Other).set_fuser_method(fused)

    # a subclass is not the declared class
    assert "observed" in failed(with_entry(LINEAR_RELU, change))


def test_another_training_module_is_caught_by_observed() -> None:
    class Other(nnqat.Linear):
        pass

    outcomes = with_entry(LINEAR_QAT, lambda entry: entry.set_qat_module(Other))
    assert "no Linear in the qat model, which the config declares" in outcomes["observed"].detail


def test_a_pattern_that_cannot_occur_is_caught_by_matched_alone() -> None:
    outcomes = judged(run("qnnpack/Tensor.hardsigmoid/static-quint8/ptq/default/exact@fbgemm"))
    assert failed(outcomes) == {"matched"}
    assert outcomes["matched"].detail.startswith("the pattern cannot occur: the float model raises AttributeError")
    assert outcomes["numerics"].result == "skip"
