"""What torch cannot tell apart is prepared and converted once, and rows are the same without these shortcuts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from conformance.cases.claims import backend
from conformance.engines.registry import engine
from conformance.execution import batch
from conformance.host.isolation import Done, run_isolated
from conformance.models import build, fx, torchs
from conformance.models.observers import rewrite, unpacked
from conformance.properties.constraints.enforcement import Enforcement
from conformance.properties.constraints.examples import Calibration, Target, ulp
from conformance.properties.constraints.observed import (
    Front,
    constrained_dtypes,
    keeps_weights,
    kind_of,
    observed_qparams,
)
from conformance.properties.metamorphic import relations
from conformance.results.rows import Row
from conformance.shortcuts import without
from conformance.stopwatch import Stopwatch
from tests.runs_by_id import run

BOUND = 2.0**-12
LINEAR = "qnnpack/F.linear/static-qint8/ptq/weight.quant_min_lower_bound/constraints@qnnpack"
FOLDED = "qnnpack/nn.Conv1d+nn.BatchNorm1d/static-qint8/ptq/weight.quant_min_lower_bound/constraints@qnnpack"
TRAINED = "qnnpack/nn.Linear/static-qint8/qat/input.scale_min_lower_bound/constraints@qnnpack"
SIGMOID = "{0}/nn.Sigmoid/static-quint8/ptq/output.zero_point_exact_match/constraints@{1}"
LARGE = "fbgemm/nn.Linear+nn.ReLU/static-quint8/ptq/large/laws@{}"


def row_of(name: str) -> Row:
    """The row of a run, judged in this process for constraints, which runs no kernel, and else in another."""
    if "/constraints@" in name:
        row = Enforcement(Stopwatch()).row(run(name))
    else:
        batch.warm_up()
        (outcome,) = run_isolated([run(name)], lambda judged: relations.row(Stopwatch(), judged))
        assert isinstance(outcome, Done), outcome
        row = outcome.value
    return replace(row, seconds=0.0)


@pytest.mark.parametrize("name", [LINEAR, FOLDED, TRAINED, SIGMOID.format("fbgemm", "x86"), LARGE.format("fbgemm")])
def test_a_row_is_the_same_without_shortcuts(name: str) -> None:
    if (reason := engine(run(name).engine).unavailable()) is not None:
        pytest.skip(reason)
    with without():
        honest = row_of(name)
    assert row_of(name) == honest


def test_a_row_does_not_depend_on_which_constraint_is_tested_first() -> None:
    """Constraints of one dtype config are tested on one model, whose weights are those of the first constraint."""
    name = "qnnpack/nn.ConvTranspose1d+nn.BatchNorm1d/static-qint8/ptq/weight.quant_min_lower_bound/constraints@qnnpack"
    fields = ("input.scale_min_lower_bound", "output.scale_min_lower_bound", "weight.quant_max_upper_bound")
    rows = []
    for first in (*(name.replace("weight.quant_min_lower_bound", field) for field in fields), name):
        enforcement = Enforcement(Stopwatch())
        enforcement.row(run(first))
        rows.append(replace(enforcement.row(run(name)), seconds=0.0))
    assert all(row == rows[0] for row in rows)


def kind(activation: str) -> Any:
    qconfig = eval(
        f"QConfig(activation={activation}, weight=MinMaxObserver.with_args(dtype=torch.qint8))", build.names()
    )
    return kind_of(qconfig, constrained_dtypes(backend("qnnpack").config))


def observer(eps: float, name: str = "MinMaxObserver", dtype: str = "qint8", most: int = 127) -> str:
    return f"{name}.with_args(dtype=torch.{dtype}, quant_min=-127, quant_max={most}, eps={eps!r})"


def test_qconfigs_on_the_same_side_of_every_bound_are_alike_whatever_observes() -> None:
    assert kind(observer(BOUND)) == kind(observer(ulp(BOUND, 1.0))) == kind(observer(BOUND, "HistogramObserver"))
    assert kind(observer(ulp(BOUND, 0.0))) == kind(observer(2.0**-23))


@pytest.mark.parametrize("other", [
    observer(ulp(BOUND, 0.0)),
    observer(BOUND, dtype="qint32"),
    "FixedQParamsObserver.with_args(scale=1.0, zero_point=0, dtype=torch.qint8, quant_min=-127, quant_max=127)",
    f"FakeQuantize.with_args(observer={observer(BOUND)})",
])  # fmt: skip
def test_qconfigs_that_prepare_can_tell_apart_are_not_alike(other: str) -> None:
    assert kind(other) not in (None, kind(observer(BOUND)))


def test_a_qconfig_whose_observer_cannot_be_built_is_like_no_other() -> None:
    assert kind(observer(BOUND, most=1000)) is None


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[object]:
    calls: list[object] = []
    honest: Callable[[Any, BackendConfig], GraphModule] = getattr(fx, name)

    def count(model: Any, config: BackendConfig) -> GraphModule:
        calls.append(model)
        return honest(model, config)

    monkeypatch.setattr(fx, name, count)
    return calls


def test_alike_qconfigs_are_prepared_once_and_others_again(monkeypatch: pytest.MonkeyPatch) -> None:
    target, front = Target(run(LINEAR).claim.dtypes, "input"), Front(run(LINEAR))
    prepared = counted(monkeypatch, "prepare")
    for eps, count in ((BOUND, 1), (ulp(BOUND, 1.0), 1), (ulp(BOUND, 0.0), 2), (2.0**-23, 2)):
        outcome = front.prepare(target.qconfig(replace(target.spec, eps=eps)))
        assert (len(prepared), outcome.used, outcome.warned) == (count, eps >= BOUND, eps < BOUND)
    with without("alike-qconfigs"):
        front.prepare(target.qconfig(replace(target.spec, eps=2.0**-22)))
    assert len(prepared) == 3


def test_models_with_equal_qparams_are_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    target, front = Target(run(LINEAR).claim.dtypes, "input"), Front(run(LINEAR))
    qconfig, converted = target.qconfig(target.spec), counted(monkeypatch, "reference")
    least = [front.convert(Calibration(qconfig, data)) for data in ("torch.zeros(2)", "torch.full((2,), 2.0**-149)")]
    assert [outcome.tensors["input"][0][1].scales.item() for outcome in least] == [BOUND, BOUND]
    assert len(converted) == 1
    usual = front.convert(Calibration(qconfig, "torch.tensor([-1.0, 1.0])"))
    assert usual.tensors["input"][0][1].scales.item() > BOUND
    assert len(converted) == 2


def test_qparams_are_told_apart_by_their_bits() -> None:
    low, high = (
        torch.ao.quantization.MinMaxObserver(eps=BOUND),
        torch.ao.quantization.MinMaxObserver(eps=ulp(BOUND, 1.0)),
    )
    for one in (low, high):
        one(torch.zeros(2))
    assert observed_qparams(nn.Sequential(low)) != observed_qparams(nn.Sequential(high))
    assert observed_qparams(nn.Sequential(torch.ao.quantization.PlaceholderObserver())) == (None,)


@pytest.mark.parametrize(("name", "kept"), [(LINEAR, True), (FOLDED, False)])
def test_rewritten_weights_equal_those_of_a_model_prepared_with_them(name: str, kept: bool) -> None:
    target, front = Target(run(name).claim.dtypes, "weight"), Front(run(name))
    first, second = (
        target.qconfig(replace(target.spec, qscheme=f"per_tensor_{kind}")) for kind in ("symmetric", "affine")
    )
    assert keeps_weights(front.subject.model, front._model(first)) is kept
    for qconfig in (first, second):
        subject = front.subject_with(qconfig)
        rewrite(subject.model, "w.clone()")
        with without("rewritten-weights"):
            honest = front._rewritten(qconfig, "-w.abs()")
        model = front._rewritten(qconfig, "-w.abs()")
        assert model.code == honest.code
        assert [name for name, _ in model.named_parameters()] == [name for name, _ in honest.named_parameters()]
        assert all(map(torch.equal, model.parameters(), honest.parameters()))


def test_a_lowered_reference_model_is_the_converted_model() -> None:
    if (reason := engine("qnnpack").unavailable()) is not None:
        pytest.skip(reason)
    subject = build.subject(run(LINEAR))
    config = subject.run.backend.config
    with engine("qnnpack").scope(), fx.quiet():
        prepared = fx.prepare(subject, config)
        fx.calibrate(prepared, subject)
        lowered = torchs.lowered(prepared, fx.reference(prepared, config))
        converted = fx.lower(prepared, config)
        assert lowered.code == converted.code
        (weight,), (expected,) = unpacked(lowered), unpacked(converted)
    assert torch.equal(weight, expected)


def test_engines_with_the_same_recipe_share_what_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    enforcement, prepared = Enforcement(Stopwatch()), counted(monkeypatch, "prepare")
    enforcement.row(run(SIGMOID.format("fbgemm", "fbgemm")))
    count = len(prepared)
    assert count
    enforcement.row(run(SIGMOID.format("fbgemm", "x86")))
    assert len(prepared) == count
    enforcement = Enforcement(Stopwatch())
    with without("engines-share-constraints"):
        for name in ("fbgemm", "x86"):
            enforcement.row(run(SIGMOID.format("fbgemm", name)))
    assert len(prepared) == 3 * count
