"""The table of tolerances: the distance from the golden that each run is allowed, and its reason."""

import dataclasses

import pytest
import torch

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.checks.tolerances import (
    EQUAL,
    FLOAT_BAND,
    RECURRENT,
    TABLE,
    TYPICAL_BAND,
    Tolerance,
    tolerance,
    unneeded,
)
from conformance.goldens.golden import Golden
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict

NEAR = Tolerance("*", "*", "a reason", "a script", steps=1)


def a_run(engine: str = "fbgemm", pattern: str = "nn.Linear", profile: str = "exact") -> Run:
    candidates = runs(backend("fbgemm"), [engine])
    return next(run for run in candidates if run.claim.pattern == pattern and run.profile == profile)


def test_only_operators_in_the_table_are_tolerated() -> None:
    assert tolerance(a_run()) == EQUAL
    assert tolerance(a_run(), [NEAR]).steps == 1
    assert tolerance(a_run(), [dataclasses.replace(NEAR, operator="nn.Conv2d")]) == EQUAL
    assert tolerance(a_run(), [dataclasses.replace(NEAR, engine="x86")]) == EQUAL
    assert (EQUAL.steps, EQUAL.relative) == (0, 0.0)


def test_normal_data_may_be_off_by_one_step_beside_a_tie() -> None:
    allowed = tolerance(a_run(profile="typical"))
    assert (allowed.steps, allowed.band, allowed.anywhere) == (1, TYPICAL_BAND, 0)
    assert NEAR.anywhere == tolerance(a_run(profile="typical"), [NEAR]).anywhere == 1


def golden(**scales: float) -> Golden:
    return Golden((), (), {name: (torch.tensor([scale]), torch.zeros(1)) for name, scale in scales.items()})


def test_a_bias_may_be_rounded_to_the_grid_of_the_accumulator() -> None:
    run = a_run(profile="trained")
    assert tolerance(run, golden=golden(x=0.5, weight=0.25, output=1.0)).band == FLOAT_BAND + 0.5 * 0.25 / 2
    assert tolerance(run, golden=golden(x=0.5, output=1.0)).band == TYPICAL_BAND
    assert tolerance(run, golden=golden(x=2.0**-9, weight=0.25, output=1.0)).band == TYPICAL_BAND
    assert tolerance(a_run(profile="in_use"), golden=golden(x=0.5, weight=0.25, output=1.0)) == EQUAL


@pytest.mark.parametrize("operator", sorted(RECURRENT))
def test_recurrent_layers_round_values_about_one(operator: str) -> None:
    assert tolerance(a_run(pattern=operator)).magnitude == 1.0


def test_recurrent_layers_round_values_about_their_initial_state() -> None:
    run = next(
        candidate
        for candidate in runs(backend("fbgemm"), ["fbgemm"])
        if candidate.id.startswith("fbgemm/nn.GRU/dynamic-quint8/ptq/state/")
    )
    assert tolerance(run).magnitude == (run.recipe.steps + 1) / 2 / 16
    assert run.variant is not None
    far = run.variant.named("far", data="37:-4")
    assert tolerance(dataclasses.replace(run, variant=far)).magnitude == (run.recipe.steps - 37) / 16


@pytest.mark.parametrize(("variant", "greatest"), [("default", 2.0), ("no_bias", 0.0)])
@pytest.mark.parametrize("operator", ["nn.Linear", "F.linear"])
def test_layers_round_values_about_their_bias(operator: str, variant: str, greatest: float) -> None:
    wanted = f"fbgemm/{operator}/dynamic-quint8/ptq/{variant}/exact@fbgemm"
    assert tolerance(next(run for run in runs(backend("fbgemm")) if run.id == wanted)).magnitude == greatest


def test_every_tolerance_has_a_reason_evidence_and_a_width() -> None:
    for row in TABLE:
        assert row.reason
        assert row.evidence
        assert row.steps or row.relative


def test_a_tolerance_that_no_run_needs_is_named() -> None:
    run = a_run()
    exactly = Row(run.id, "", "", "", "", "", "", "", verdict=Verdict.CONFORMS, tolerated=0)
    assert unneeded([exactly], [run], [NEAR]) == [NEAR]
    assert unneeded([dataclasses.replace(exactly, tolerated=3)], [run], [NEAR]) == []
    assert unneeded([exactly], [run], [dataclasses.replace(NEAR, engine="qnnpack")]) == []
