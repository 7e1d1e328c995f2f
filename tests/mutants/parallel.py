"""Work on a list of jobs in as many processes as there are cores; each job in a child, so that a crash costs one."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from conformance.host.isolation import Done, Outcome, run_isolated
from conformance.models.taken import take_shortcuts
from conformance.progress import progress

from .injection import INJECTION

T = TypeVar("T")
R = TypeVar("R")

_WORK: list[Any] = []
"""The function and the jobs of the current loop, which workers inherit."""

SECONDS = 600.0
"""CPU seconds that a job may take."""


def _do(number: int) -> tuple[int, Outcome[Any]]:
    work, jobs = _WORK
    take_shortcuts()
    (outcome,) = run_isolated([jobs[number]], work, SECONDS)
    return number, outcome


def in_parallel(work: Callable[[T], R], jobs: Sequence[T], title: str) -> Iterator[tuple[T, Outcome[R]]]:
    """Yield each job with its outcome, in the order in which they are done. Kernels are overridden where `work` is called."""
    if not jobs:
        return
    _WORK[:] = work, jobs
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), INJECTION.install) as pool:
        for number, outcome in progress(pool.imap_unordered(_do, range(len(jobs))), title, len(jobs)):
            yield jobs[number], outcome


def in_batches(
    work: Callable[[Sequence[T]], Sequence[R]], jobs: Sequence[T], size: int, title: str
) -> Iterator[tuple[T, Outcome[R]]]:
    """Yield each job with its outcome. `size` jobs share a call of `work`, unless it fails: then each has one of its own."""
    parts = [jobs[start : start + size] for start in range(0, len(jobs), size)]
    while parts:
        failed = list[T]()
        for part, outcome in in_parallel(work, parts, title):
            if isinstance(outcome, Done):
                yield from zip(part, map(Done, outcome.value), strict=True)
            elif len(part) == 1:
                yield part[0], outcome
            else:
                failed += part
        parts = [[job] for job in failed]


def results_of(work: Callable[[T], R], jobs: Sequence[T], title: str) -> list[R]:
    """The results of jobs that cannot fail, in the order of the jobs. Raises RuntimeError if one fails."""
    results: dict[int, R] = {}
    numbered = [*enumerate(jobs)]

    for (number, job), outcome in in_parallel(lambda pair: work(pair[1]), numbered, title):
        if not isinstance(outcome, Done):
            raise RuntimeError(f"{title}: {job} fails: {outcome}")
        results[number] = outcome.value
    return [results[number] for number in range(len(jobs))]
