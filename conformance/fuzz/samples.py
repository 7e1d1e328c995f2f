"""Samples of a fuzzing campaign: drawn variants of a claim, and the families of claims that a campaign draws from."""

from dataclasses import dataclass

import torch

from conformance.cases.claims import BackendClaims
from conformance.cases.operators import Variant
from conformance.cases.runs import Run
from conformance.host.poison import fresh_memory_holds
from conformance.models.build import float_outputs, subject
from conformance.models.fx import quiet
from conformance.results.profiles import GENERATED

MOST_ELEMENTS = 100_000
"""Largest number of elements of an output. Larger outputs take time and show nothing that smaller ones do not."""


@dataclass(frozen=True)
class Sample:
    """A drawn variant of a claim (by id), in a flow on an engine."""

    claim: str
    flow: str
    engine: str
    variant: Variant


def run_of(backend: BackendClaims, sample: Sample) -> Run:
    """The run of a sample."""
    claim = next(claim for claim in backend.claims if claim.id == sample.claim)
    return Run(backend, claim, sample.flow, sample.variant, GENERATED.name, sample.engine)


def valid(run: Run) -> bool:
    """Whether the float model can be built and its outputs are finite, deterministic, not empty in calibration, and small.

    Outputs that depend on the contents of fresh memory, such as those of `resize_` to a greater size, are not valid.
    """
    with quiet():
        try:
            case = subject(run)
            calibrated = float_outputs(case, case.calibration)
            with fresh_memory_holds(0x55):
                outputs = float_outputs(case)
            with fresh_memory_holds(0xAA):
                again = float_outputs(case)
        except Exception:  # drawn options may be wrong in any way, and torch raises exceptions of many types
            return False
    if not all(map(torch.equal, outputs, again)):
        return False
    # an observer cannot compute qparams from no values or from infinite ones
    bounded = all(output.numel() and bool(output.isfinite().all()) for output in calibrated)
    return bounded and all(output.numel() <= MOST_ELEMENTS for output in outputs)
