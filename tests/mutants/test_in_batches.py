"""Batches of jobs: one that dies or raises costs nothing but itself."""

import os
from collections.abc import Sequence

import pytest

from conformance.host.isolation import Death, Done, Raised

from .injection import INJECTION
from .parallel import in_batches, results_of


def work(jobs: Sequence[int]) -> list[int]:
    for job in jobs:
        if job == 3:
            os.abort()
        assert job != 5
    return [job * 10 for job in jobs]


def test_a_job_that_dies_costs_nothing_but_itself() -> None:
    outcomes = dict(in_batches(work, range(8), 4, "jobs"))
    assert {job: outcome.value for job, outcome in outcomes.items() if isinstance(outcome, Done)} == {
        job: job * 10 for job in (0, 1, 2, 4, 6, 7)
    }
    assert isinstance(outcomes[3], Death)
    assert isinstance(outcomes[5], Raised)


def test_results_are_in_the_order_of_the_jobs() -> None:
    assert results_of(lambda job: job + 1, [*range(20)], "jobs") == [*range(1, 21)]


def test_a_job_that_cannot_fail_and_does_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="jobs: 5 fails"):
        results_of(lambda job: work([job]), [4, 5], "jobs")


def test_kernels_are_overridden_where_work_is_done() -> None:
    assert results_of(lambda job: INJECTION.installed, [1], "jobs") == [True]
    assert not INJECTION.installed
