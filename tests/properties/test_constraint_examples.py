"""QConfigs on both sides of a bound, and what observers observe."""

import pytest
import torch
from torch.ao.quantization.backend_config import DTypeConfig, DTypeWithConstraints

from conformance.cases.constraints import unsatisfied
from conformance.models import build, fx
from conformance.properties.constraints.examples import (
    ACTIVATIONS,
    TRAINED,
    Target,
    calibrations,
    qconfigs_around,
    ulp,
)
from conformance.results.constraints import SIDES

BOUND = 2.0**-12
SYMMETRIC = DTypeWithConstraints(torch.qint8, -127, 127, BOUND)
FIXED = DTypeWithConstraints(torch.quint8, 0, 255, scale_exact_match=1 / 256, zero_point_exact_match=0)


def target(side: str, *, qat: bool = False, fixed: bool = False) -> Target:
    dtypes = DTypeConfig(FIXED, FIXED) if fixed else DTypeConfig(SYMMETRIC, SYMMETRIC, SYMMETRIC, torch.float)
    return Target(dtypes, side, qat, axis=0)


@pytest.mark.parametrize(("side_target", "field", "words"), [
    (target("input"), "scale_min_lower_bound", [
        "MinMaxObserver", "HistogramObserver", "symmetric", "FixedQParamsObserver", "eps=0.000244140625)",
        f"eps={ulp(BOUND, 0.0)!r}", f"eps={ulp(BOUND, 1.0)!r}", f"eps={2.0**-23!r}",
    ]),
    (target("input", qat=True), "scale_min_lower_bound", ["FakeQuantize", "FusedMovingAvgObsFakeQuantize"]),
    (target("weight"), "quant_min_lower_bound", [
        "quant_min=-127", "quant_min=-128", "quant_min=-126", "per_tensor_affine", "PerChannelMinMaxObserver",
    ]),
    (target("weight"), "quant_max_upper_bound", ["quant_max=127", "quant_max=128", "quant_max=126"]),
    (target("input", fixed=True), "scale_exact_match", [
        "scale=0.00390625,", f"scale={ulp(1 / 256, 0.0)!r}", f"scale={ulp(1 / 256, 1.0)!r}", "MinMaxObserver",
        "activation=FakeQuantize", "FixedQParamsFakeQuantize",
    ]),
    (target("input", fixed=True), "zero_point_exact_match", ["zero_point=0,", "zero_point=1,", "zero_point=-1,"]),
])  # fmt: skip
def test_qconfigs_of_every_kind_are_tried_around_a_field(side_target: Target, field: str, words: list[str]) -> None:
    sources = qconfigs_around(side_target, field)
    assert [word for word in words if not any(word in source for source in sources)] == []
    assert len(sources) <= 30, "each takes milliseconds"


def violated_by(source: str, side_target: Target) -> set[str]:
    qconfig = eval(source, build.names())
    post_process = qconfig.weight() if side_target.side == "weight" else qconfig.activation()
    assessments = unsatisfied(side_target.constraints, post_process)
    return {field for field, assessment in assessments.items() if assessment.violation is not None}


@pytest.mark.parametrize(("side_target", "field"), [
    (target(side), field) for side in SIDES
    for field in ("quant_min_lower_bound", "quant_max_upper_bound", "scale_min_lower_bound")
])  # fmt: skip
def test_a_qconfig_around_a_field_violates_its_own_field_or_none(side_target: Target, field: str) -> None:
    with fx.quiet():
        violated = [violated_by(source, side_target) for source in qconfigs_around(side_target, field)]
    assert {frozenset(fields) for fields in violated} == {frozenset(), frozenset({field})}


def test_calibrations_satisfy_every_constraint() -> None:
    for side_target in (target("input"), target("weight"), target("weight", qat=True), target("input", fixed=True)):
        with fx.quiet():
            assert not any(violated_by(calibration.qconfig, side_target) for calibration in calibrations(side_target))


def test_calibrations_observe_every_kind_of_data_and_train() -> None:
    assert {calibration.data for calibration in calibrations(target("input"))} == {*ACTIVATIONS}
    assert TRAINED in {calibration.trained for calibration in calibrations(target("weight", qat=True))}
    assert TRAINED not in {calibration.trained for calibration in calibrations(target("weight"))}
