"""Families of a backend's claims: what one campaign of the fuzzer searches on an engine."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from conformance.configs.engines import ENGINE_TABLE, ahead_of_time
from conformance.configs.workflows import WorkflowConfig
from conformance.results.families import FAMILIES, family_named

from .claims import BackendClaims, Claim
from .variants import in_tables, not_covered


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


def families(backend: BackendClaims, engines: Iterable[str] = (), *, slow: bool = False) -> Iterator[Family]:
    """Yield every family of a backend's claims on `engines`; without any, on those that the registry names for the backend.

    Engines that lower ahead of time are left out unless `slow`, because shrinking a sample takes a thousand runs. Those that
    take seconds for a model are left out always, and workflows, which convert no models.
    """
    if isinstance(backend.config, WorkflowConfig):
        return
    covered = [claim for claim in backend.claims if in_tables(claim) and not not_covered(claim)]
    for name in FAMILIES:
        claims = tuple(claim for claim in covered if family_named(claim.root) == name)
        for engine in tuple(engines) or backend.engines:
            left_out = ENGINE_TABLE[engine].default_only or (ahead_of_time(engine) and not slow)
            if claims and not left_out:
                yield Family(name, backend, claims, engine)
