"""Constraints have the meaning that torch documents, to the last ulp."""

from typing import Any

import pytest
import torch
from torch.ao.quantization import (
    FakeQuantize,
    FixedQParamsFakeQuantize,
    FixedQParamsObserver,
    MinMaxObserver,
    PlaceholderObserver,
)
from torch.ao.quantization.backend_config import DTypeConfig, DTypeWithConstraints

from conformance.cases.claims import backend
from conformance.cases.constraints import Assessment, Quantized, assess, constrained, unsatisfied, violations
from conformance.cases.runs import runs
from conformance.properties.constraints.examples import ulp
from conformance.results.constraints import CONSTRAINTS, FIELDS, SIDES, Constraint
from conformance.results.findings.constraints import NoFixedQparams, ObserverViolation

BOUND = 2.0**-12
SYMMETRIC = DTypeWithConstraints(torch.qint8, -127, 127, BOUND)
FIXED = DTypeWithConstraints(torch.quint8, 0, 255, scale_exact_match=1 / 256, zero_point_exact_match=0)

# Observers.


def observer(**arguments: Any) -> MinMaxObserver:
    return MinMaxObserver(**{"dtype": torch.qint8, "quant_min": -127, "quant_max": 127, "eps": BOUND, **arguments})


@pytest.mark.parametrize("eps", [BOUND, ulp(BOUND, 1.0), 1.0])
def test_a_least_scale_at_the_bound_or_above_satisfies_it(eps: float) -> None:
    assert assess(SYMMETRIC, "scale_min_lower_bound", observer(eps=eps)) == Assessment()


@pytest.mark.parametrize("eps", [ulp(BOUND, 0.0), 2.0**-23, 0.0, float("nan")])
def test_a_least_scale_below_the_bound_violates_it(eps: float) -> None:
    violation = assess(SYMMETRIC, "scale_min_lower_bound", observer(eps=eps)).violation
    assert isinstance(violation, ObserverViolation)
    assert (violation.attribute, violation.bound) == ("eps", BOUND)
    assert violation.text.endswith(" is below 0.000244140625")


def test_an_eps_is_compared_in_the_precision_that_the_observer_stores() -> None:
    near = BOUND * (1 - 2.0**-50)
    assert not assess(SYMMETRIC, "scale_min_lower_bound", observer(eps=near)).violation
    assert assess(SYMMETRIC, "scale_min_lower_bound", PlaceholderObserver(torch.qint8, eps=near)).violation


def test_a_fixed_scale_is_the_least_scale() -> None:
    below = FixedQParamsObserver(ulp(BOUND, 0.0), 0, dtype=torch.qint8)  # type: ignore[no-untyped-call]
    assert assess(SYMMETRIC, "scale_min_lower_bound", below).violation
    at = FixedQParamsObserver(BOUND, 0, dtype=torch.qint8)  # type: ignore[no-untyped-call]
    assert assess(SYMMETRIC, "scale_min_lower_bound", at) == Assessment(open="it has no eps")


@pytest.mark.parametrize(("low", "high", "broken"), [
    (-127, 127, set()), (-64, 63, set()), (-128, 127, {"quant_min_lower_bound"}), (-127, 128, {"quant_max_upper_bound"}),
    (-126, 126, set()),
])  # fmt: skip
def test_a_range_lies_within_the_bounds(low: int, high: int, broken: set[str]) -> None:
    assert set(unsatisfied(SYMMETRIC, observer(quant_min=low, quant_max=high))) == broken


def test_an_observer_without_a_range_is_left_open() -> None:
    assessments = unsatisfied(SYMMETRIC, PlaceholderObserver(torch.qint8, eps=BOUND))
    assert {field: assessment.violation for field, assessment in assessments.items()} == {
        "quant_min_lower_bound": None,
        "quant_max_upper_bound": None,
    }
    assert all(assessment.open for assessment in assessments.values())


def fixed(scale: float = 1 / 256, zero_point: int = 0) -> Any:
    return FixedQParamsObserver.with_args(scale=scale, zero_point=zero_point)


@pytest.mark.parametrize("post_process", [fixed()(), FixedQParamsFakeQuantize(observer=fixed())])  # type: ignore[no-untyped-call]
def test_equal_fixed_qparams_satisfy_an_exact_match(post_process: Any) -> None:
    assert unsatisfied(FIXED, post_process) == {}


@pytest.mark.parametrize(("post_process", "broken"), [
    (fixed(scale=ulp(1 / 256, 0.0))(), {"scale_exact_match"}),
    (fixed(scale=ulp(1 / 256, 1.0))(), {"scale_exact_match"}),
    (fixed(zero_point=1)(), {"zero_point_exact_match"}),
    (MinMaxObserver(), {"scale_exact_match", "zero_point_exact_match"}),
    (FakeQuantize(observer=fixed()), {"scale_exact_match", "zero_point_exact_match"}),  # type: ignore[no-untyped-call]
])  # fmt: skip
def test_other_qparams_or_other_observers_violate_an_exact_match(post_process: Any, broken: set[str]) -> None:
    assert set(unsatisfied(FIXED, post_process)) == broken


def test_an_exact_scale_is_rounded_to_float32() -> None:
    tenth = DTypeWithConstraints(torch.quint8, scale_exact_match=0.1)
    assert assess(tenth, "scale_exact_match", fixed(scale=0.1)()) == Assessment()


def test_the_greatest_scale_of_observers_is_left_open_as_documented() -> None:
    greatest = DTypeWithConstraints(torch.qint8, scale_max_upper_bound=1.0)
    assert assess(greatest, "scale_max_upper_bound", observer(eps=2.0)).open


# Quantized tensors.


def tensor(scale: float, zero_point: float = 0, *codes: int) -> Quantized:
    return Quantized(torch.tensor([scale]).double(), torch.tensor([zero_point]).double(), torch.tensor(codes or (0,)))


@pytest.mark.parametrize(("quantized", "sentences"), [
    (tensor(BOUND, 0, -127, 127), []),
    (tensor(ulp(BOUND, 0.0)), ["scale 0.00024414061044808477 is below 0.000244140625"]),
    (tensor(float("nan")), ["scale nan is below 0.000244140625"]),
    (tensor(BOUND, 0, -128), ["has code -128, below quant_min -127"]),
    (tensor(BOUND, 0, 128), ["has code 128, above quant_max 127"]),
])  # fmt: skip
def test_violations_of_a_symmetric_dtype_by_a_tensor(quantized: Quantized, sentences: list[str]) -> None:
    assert [violation.text for violation in violations(SYMMETRIC, quantized)] == sentences


@pytest.mark.parametrize(("quantized", "sentences"), [
    (tensor(1 / 256, 0, 0, 255), []),
    (tensor(ulp(1 / 256, 1.0)), ["scale is 0.003906250465661287, not 0.00390625"]),
    (tensor(1 / 256, 1), ["zero point is 1, not 0"]),
])  # fmt: skip
def test_violations_of_fixed_qparams_by_a_tensor(quantized: Quantized, sentences: list[str]) -> None:
    assert [violation.text for violation in violations(FIXED, quantized)] == sentences


def test_one_channel_is_enough_to_violate_a_bound() -> None:
    scales = torch.tensor([1.0, ulp(BOUND, 0.0)]).double()
    assert [*violations(SYMMETRIC, Quantized(scales, torch.zeros(2), torch.zeros(0)))]


def test_the_greatest_scale_of_tensors_is_tested() -> None:
    greatest = DTypeWithConstraints(torch.qint8, scale_max_upper_bound=1.0)
    assert not [*violations(greatest, tensor(1.0))]
    assert [*violations(greatest, tensor(ulp(1.0, 2.0)))]


def test_an_observer_without_fixed_qparams_is_named() -> None:
    assert assess(FIXED, "scale_exact_match", MinMaxObserver()).violation == NoFixedQparams("MinMaxObserver")


# Constraints of dtype configs and of runs.


def test_each_field_that_a_dtype_config_sets_is_a_constraint() -> None:
    assert [*constrained(DTypeConfig(SYMMETRIC, FIXED))] == [
        Constraint("input", "quant_min_lower_bound"),
        Constraint("input", "quant_max_upper_bound"),
        Constraint("input", "scale_min_lower_bound"),
        Constraint("output", "quant_min_lower_bound"),
        Constraint("output", "quant_max_upper_bound"),
        Constraint("output", "scale_exact_match"),
        Constraint("output", "zero_point_exact_match"),
    ]


def test_every_constraint_is_found_by_its_name() -> None:
    assert set(CONSTRAINTS.values()) == {Constraint(side, field) for side in SIDES for field in FIELDS}
    assert all(constraint.name == name for name, constraint in CONSTRAINTS.items())


@pytest.mark.parametrize("name", ["qnnpack", "fbgemm", "onednn", "executorch"])
def test_every_field_that_a_config_sets_has_runs(name: str) -> None:
    claims = backend(name)
    expected = {(claim.id, constraint) for claim in claims.claims for constraint in constrained(claim.dtypes)}
    constraint_runs = [run for run in runs(claims) if run.profile == "constraints"]
    assert {(run.claim.id, run.constraint) for run in constraint_runs} == expected
    for run in constraint_runs:
        assert run.variant is not None
        assert run.constraint is not None
        assert run.variant.name == run.constraint.name


def test_only_constraint_runs_have_a_constraint() -> None:
    assert all((run.constraint is not None) == (run.profile == "constraints") for run in runs(backend("fbgemm")))
