"""Runs of the registered backends, by their ids."""

from functools import cache

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs


@cache
def run(run_id: str) -> Run:
    """The run of an id. Raises StopIteration if there is none."""
    candidates = runs(backend(run_id.partition("/")[0]), [run_id.rpartition("@")[2]])
    return next(candidate for candidate in candidates if candidate.id == run_id)
