"""Runs fail with a false golden and pass with the right one."""

from collections.abc import Callable

import pytest
import torch

from conformance.cases.runs import Run
from conformance.checks.evidence import Outcome
from conformance.checks.judge import CHECKS, Judge
from conformance.engines.registry import engine
from conformance.execution import batch
from conformance.goldens.golden import Golden, name_of
from conformance.goldens.store import Store
from conformance.host.isolation import Done, run_isolated
from tests.goldens.golden_runs import (
    DYNAMIC,
    LINEAR,
    PER_CHANNEL,
    RELU,
    computed,
    falsified,
    flip_bit,
    with_qparams,
)
from tests.runs_by_id import run


def judged(store: Store, run_id: str) -> dict[str, Outcome]:
    """Judge a run with the goldens of a store, in a child process."""
    if (reason := engine(run(run_id).engine).unavailable()) is not None:
        pytest.skip(f"{run(run_id).engine}: {reason}")
    batch.warm_up()

    def work(judged_run: Run) -> dict[str, Outcome]:
        evidence = Judge(store).evidence(judged_run)
        assert not evidence.expectation.unusable, evidence.expectation.unusable
        return {name: CHECKS[name](evidence) for name in judged_run.checks}

    (outcome,) = run_isolated([run(run_id)], work)
    assert isinstance(outcome, Done), outcome
    return outcome.value


def scale_in_its_last_bit(golden: Golden) -> Golden:
    bigger = torch.tensor(9.0, dtype=torch.float64)
    return with_qparams(golden, "output", lambda scale, zero_point: (torch.nextafter(scale, bigger), zero_point))


def zero_point_by_one(golden: Golden) -> Golden:
    return with_qparams(golden, "output", lambda scale, zero_point: (scale, zero_point + 1))


def weight_scale_in_its_last_bit(golden: Golden) -> Golden:
    bigger = torch.tensor(9.0, dtype=torch.float64)
    return with_qparams(golden, "weight", lambda scale, zero_point: (torch.nextafter(scale, bigger), zero_point))


def input_zero_point_by_one(golden: Golden) -> Golden:
    return with_qparams(golden, "x", lambda scale, zero_point: (scale, zero_point - 1))


@pytest.mark.parametrize(
    ("change", "caught"),
    [
        (flip_bit, {"numerics", "reference"}),
        (scale_in_its_last_bit, {"numerics", "reference"}),
        (zero_point_by_one, {"numerics", "reference"}),
        (weight_scale_in_its_last_bit, {"reference"}),
        (input_zero_point_by_one, {"reference"}),
    ],
)
def test_a_false_golden_is_caught(store: Store, change: Callable[[Golden], Golden], caught: set[str]) -> None:
    outcomes = judged(falsified(store, LINEAR, change), LINEAR)
    assert {name for name, outcome in outcomes.items() if outcome.result == "fail"} == caught


def test_swapped_scales_of_channels_are_caught(store: Store) -> None:
    def swap(golden: Golden) -> Golden:
        return with_qparams(golden, "weight", lambda scale, zero_point: (scale.flip(0), zero_point))

    golden, digest = computed(PER_CHANNEL)
    assert golden.qparams["weight"][0][0] != golden.qparams["weight"][0][-1]
    for change, caught in ((lambda golden: golden, set()), (swap, {"reference"})):
        store.write({name_of(run(PER_CHANNEL)): (change(golden), digest)})
        outcomes = judged(Store(store.folder), PER_CHANNEL)
        assert {name for name, outcome in outcomes.items() if outcome.result == "fail"} == caught


@pytest.mark.parametrize("name", [LINEAR, RELU, DYNAMIC, PER_CHANNEL])
def test_a_run_passes_with_the_right_golden(store: Store, name: str) -> None:
    assert {outcome.result for outcome in judged(store, name).values()} == {"pass"}
