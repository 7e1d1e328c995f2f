"""A torch that does not keep constraints, at prepare or in the converted model, is caught."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.ao.quantization import QConfigMapping
from torch.ao.quantization.backend_config import BackendConfig, DTypeWithConstraints
from torch.fx import GraphModule

from conformance.cases.runs import Run
from conformance.engines.registry import engine
from conformance.models import build, fx
from conformance.models.observers import unpacked
from conformance.properties.constraints.enforcement import ConstraintProperty, Enforcement
from conformance.properties.constraints.examples import Calibration, Target, ulp
from conformance.properties.constraints.observed import Harness
from conformance.results.constraints import SIDES
from conformance.results.findings import detail_of
from conformance.results.findings.constraints import (
    ConvertedViolation,
    IgnoredQConfigTrainsWeight,
    SatisfyingQConfigIgnored,
    SatisfyingQConfigWarned,
    ViolatingQConfigIgnored,
    ViolatingQConfigUsed,
    Violation,
)
from conformance.results.ledger_file import load
from conformance.results.rows import Row
from conformance.shortcuts import without
from conformance.stopwatch import Stopwatch
from tests.runs_by_id import run as run_of_id

BOUND = 2.0**-12

ADD = "qnnpack/torch.add/static-qint8/ptq/input.scale_min_lower_bound"
LINEAR = "qnnpack/F.linear/static-qint8/ptq/weight.scale_min_lower_bound"
CODES = "qnnpack/F.linear/static-qint8/ptq/weight.quant_min_lower_bound"
SIGMOID = "qnnpack/nn.Sigmoid/static-quint8/ptq/output.zero_point_exact_match"


def run(name: str) -> Run:
    return run_of_id(f"{name}/constraints@qnnpack")


def judged(name: str) -> Row:
    row = Enforcement(Stopwatch()).row(run(name))
    assert row.detail == detail_of(row.findings)
    return row


@pytest.mark.parametrize("name", [ADD, LINEAR, SIGMOID])
def test_torch_as_it_is_passes_where_it_keeps_to_constraints(name: str) -> None:
    row = judged(name)
    assert (row.verdict, dict(row.checks)) == ("conforms", {"observed": "pass", "constraints": "pass"}), row.detail


Prepare = Callable[[build.Subject, BackendConfig], GraphModule]


def unconstrained(prepare: Prepare) -> Prepare:
    """Use every QConfig."""

    def lie(subject: build.Subject, config: BackendConfig) -> GraphModule:
        config = copy.deepcopy(config)
        for entry in config.configs:
            for dtypes in entry.dtype_configs:
                for side in SIDES:
                    constraint = getattr(dtypes, f"{side}_dtype_with_constraints")
                    setattr(dtypes, f"{side}_dtype_with_constraints", DTypeWithConstraints(constraint.dtype))
        return prepare(subject, config)

    return lie


def unused(prepare: Prepare) -> Prepare:
    """Use no QConfig."""

    def lie(subject: build.Subject, config: BackendConfig) -> GraphModule:
        return prepare(replace(subject, mapping=QConfigMapping()), config)

    return lie


def silent(prepare: Prepare) -> Prepare:
    """Ignore without a warning."""

    def lie(subject: build.Subject, config: BackendConfig) -> GraphModule:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return prepare(subject, config)

    return lie


def alarming(prepare: Prepare) -> Prepare:
    """Warn of every QConfig that it is ignored."""

    def lie(subject: build.Subject, config: BackendConfig) -> GraphModule:
        warnings.warn("ignoring QConfig", stacklevel=2)
        return prepare(subject, config)

    return lie


@pytest.mark.parametrize("name", [ADD, LINEAR, SIGMOID])
@pytest.mark.parametrize(("lie", "kind", "sentence"), [
    (unconstrained, ViolatingQConfigUsed, "and it is used without a warning: QConfig("),
    (unused, SatisfyingQConfigIgnored, "satisfies every constraint and is ignored: QConfig("),
    (silent, ViolatingQConfigIgnored, "and it is ignored without a warning: QConfig("),
    (alarming, SatisfyingQConfigWarned,
     "satisfies every constraint and is used, with a warning that it is ignored: QConfig("),
])  # fmt: skip
def test_a_prepare_that_decides_otherwise_is_caught(
    name: str, lie: Callable[[Prepare], Prepare], kind: type, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fx, "prepare", lie(fx.prepare))
    row = judged(name)
    assert row.checks["observed"] == "fail"
    assert kind in [type(finding) for finding in row.findings if finding.check == "observed"]
    assert sentence in row.detail


def test_a_wrongly_used_qconfig_is_followed_into_the_converted_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fx, "prepare", unconstrained(fx.prepare))
    row = judged(ADD)
    assert "; then input scale 0.00024414061044808477 is below 0.000244140625" in row.detail
    (finding,) = row.findings
    assert isinstance(finding, ViolatingQConfigUsed)
    assert finding.consequence is not None
    assert (finding.consequence.tensor, finding.consequence.violation.bound) == ("input", BOUND)


def changed(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    """Change the qparams of the quantizers in a reference model."""

    def lie(reference: Any) -> Any:
        def lying(prepared: GraphModule, config: BackendConfig, **options: bool) -> GraphModule:
            model: GraphModule = reference(prepared, config, **options)
            for key, buffer in model.named_buffers():
                if name in key:
                    buffer.copy_(change(buffer))
            return model

        return lying

    return lie


@pytest.mark.parametrize(("name", "lie", "sentence"), [
    (ADD, changed("_scale_", lambda scale: torch.where(scale == BOUND, torch.tensor(ulp(BOUND, 0.0)), scale)),
     "input scale 0.00024414061044808477 is below 0.000244140625 when "),
    (SIGMOID, changed("_zero_point_", lambda zero_point: zero_point + 1), "output zero point is 1, not 0 when "),
])  # fmt: skip
def test_a_conversion_that_changes_qparams_is_caught(
    name: str, lie: Callable[[Any], Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fx, "reference", lie(fx.reference))
    row = judged(name)
    assert dict(row.checks) == {"observed": "pass", "constraints": "fail"}
    assert f"constraints: {sentence}" in row.detail


def test_a_packed_weight_beyond_the_range_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    if (reason := engine("qnnpack").unavailable()) is not None:
        pytest.skip(reason)
    packed_run, honest = run(CODES), fx.lower
    target = Target(packed_run.claim.dtypes, "weight")
    assert packed_run.constraint is not None
    tested = ConstraintProperty(packed_run, Harness(packed_run), target, packed_run.constraint)
    calibration = Calibration(target.qconfig(target.spec), weights="w")

    def lie(prepared: GraphModule, config: BackendConfig) -> GraphModule:
        lowered = honest(prepared, config)
        for name, value in [*vars(lowered).items()]:
            if isinstance(value, torch.ScriptObject):
                weight = torch._make_per_tensor_quantized_tensor(torch.full((8, 16), -128, dtype=torch.int8), 1.0, 0)
                setattr(lowered, name, torch.ops.quantized.linear_prepack(weight, None))
        return lowered

    with engine("qnnpack").scope(), without("conversion"):
        assert tested.converted_violation(calibration) is None
        monkeypatch.setattr(fx, "lower", lie)
        tested.harness.tensors.clear()
        finding = tested.converted_violation(calibration)
    assert finding is not None
    assert finding.violation == ConvertedViolation(
        "packed weight", Violation("quant_min_lower_bound", -128, -127), "", "w", ""
    )
    assert finding.text.startswith("packed weight has code -128, below quant_min -127: ")


@pytest.mark.parametrize("name", [LINEAR, "qnnpack/nn.Conv2d/static-qint8/ptq/weight.scale_min_lower_bound"])
def test_packed_weights_are_found_of_functions_and_modules(name: str) -> None:
    if (reason := engine("qnnpack").unavailable()) is not None:
        pytest.skip(reason)
    subject = build.subject(run(name))
    with engine("qnnpack").scope(), fx.quiet():
        prepared = fx.prepare(subject, run(name).backend.config)
        fx.calibrate(prepared, subject)
        assert [t.dtype for t in unpacked(fx.lower(prepared, run(name).backend.config))] == [torch.qint8]


def test_a_property_without_any_model_to_test_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **options: object) -> GraphModule:
        raise RuntimeError

    monkeypatch.setattr(fx, "reference", fails)
    assert judged(ADD).checks["constraints"] == "skip"
    monkeypatch.setattr(fx, "prepare", fails)
    assert judged(ADD).checks["observed"] == "skip"


def test_runs_of_a_claim_share_a_harness_and_other_claims_get_a_new_one() -> None:
    enforcement = Enforcement(Stopwatch())
    first = enforcement.harness(run(ADD))
    assert enforcement.harness(run("qnnpack/torch.add/static-qint8/ptq/output.scale_min_lower_bound")) is first
    enforcement.harness(run(SIGMOID))
    assert enforcement.harness(run(ADD)) is not first


def test_a_training_module_that_ignores_a_qconfig_and_uses_its_weight_observer_is_found() -> None:
    row = judged("qnnpack/nn.Linear/static-qint8/qat/input.scale_min_lower_bound")
    assert [type(finding) for finding in row.findings] == [IgnoredQConfigTrainsWeight]
    assert row.failed == {"observed"}


def test_every_entry_of_the_ledger_says_what_torch_does() -> None:
    ids = {entry.id for entry in load() if any(where.names("profile", "constraints") for where in entry.where)}
    assert "module-weights-unchecked" in ids
