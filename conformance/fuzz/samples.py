"""Samples of a fuzzing campaign: drawn variants of a claim, and the families of claims that a campaign draws from."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from conformance.cases.claims import BackendClaims, Claim
from conformance.cases.operators import Variant
from conformance.cases.runs import Run, ahead_of_time
from conformance.cases.sources import in_tables, not_covered
from conformance.configs.engines import ENGINE_TABLE
from conformance.host.poison import fresh_memory_holds
from conformance.models.build import float_outputs, subject
from conformance.models.fx import quiet
from conformance.results.families import FAMILIES, family_named
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


@dataclass(frozen=True, eq=False)
class Family:
    """The claims of one operator family that a backend makes and the operator tables cover, on an engine."""

    name: str
    backend: BackendClaims
    claims: tuple[Claim, ...]
    engine: str

    @property
    def id(self) -> str:
        return f"{self.backend.name}/{self.name.replace(' ', '-')}@{self.engine}"

    def __repr__(self) -> str:
        return self.id


def family(claim: Claim) -> str:
    """Name of the family that a claim belongs to."""
    return family_named(claim.root)


def families(backend: BackendClaims, engines: Iterable[str] = (), *, slow: bool = False) -> Iterator[Family]:
    """Yield every family of a backend's claims on `engines`; without any, on those that the registry names for the backend.

    Engines that lower ahead of time are left out unless `slow`, because shrinking a sample takes a thousand runs. Those that
    take seconds for a model are left out always.
    """
    covered = [claim for claim in backend.claims if in_tables(claim) and not not_covered(claim)]
    for name in FAMILIES:
        claims = tuple(claim for claim in covered if family(claim) == name)
        for engine in tuple(engines) or backend.engines:
            left_out = ENGINE_TABLE[engine].default_only or (ahead_of_time(engine) and not slow)
            if claims and not left_out:
                yield Family(name, backend, claims, engine)


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
