"""Cases and runs: every claim with every variant, flow, profile and engine, in a stable order and by id."""

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch.ao.quantization.backend_config import ObservationType

from conformance.configs.engines import ENGINE_TABLE
from conformance.errors import UsageError
from conformance.oracle.scheme import ALWAYS
from conformance.results.profiles import BENCH, CASES
from conformance.suggestions import did_you_mean

from .claims import BackendClaims, Claim
from .constraints import constrained
from .operators import EXTENTS, Operand, Variant
from .ranges import bounds
from .recipes import Recipe, recipe, typical_recipe
from .sources import (
    Model,
    deployed,
    flows,
    is_qat_module,
    large,
    missing_operators,
    model_source,
    operators_of,
    root_of,
    target_source,
    variants,
)

AHEAD_OF_TIME = frozenset(name for name, spec in ENGINE_TABLE.items() if spec.ahead_of_time)
"""Engines that lower a model ahead of time, which takes a fifth of a second each. They run the core variants of a claim, and
the others and the laws where one asks for them (`--case`)."""


KERNEL_ONLY = ("saturates", "symmetric")
"""Variants that show what a kernel does at the ends of its output: the same whether or not the model was trained."""


@dataclass(frozen=True, eq=False)
class Run:
    """One case on one engine: one pytest item and one row. `variant` is None if the tables lack an operator."""

    backend: BackendClaims
    claim: Claim
    flow: str
    variant: Variant | None
    profile: str
    engine: str

    @cached_property
    def id(self) -> str:
        name = self.variant.name if self.variant else "not-covered"
        return f"{self.claim.id}/{self.flow}/{name}/{self.profile}@{self.engine}"

    @property
    def key(self) -> str:
        """What the data are a function of: the case id without the backend, so that backends share data."""
        return self.id.rpartition("@")[0].partition("/")[2]

    @property
    def variant_has_other_operators(self) -> bool:
        """Whether the model holds more than one application of the pattern and nothing else."""
        assert self.variant is not None
        return bool(self.variant.prelude) or " where " in self.variant.other or "self.op(self.op(" in self.variant.call

    @cached_property
    def model(self) -> Model:
        assert self.variant is not None
        return model_source(self.claim, self.variant)

    @cached_property
    def recipe(self) -> Recipe:
        assert self.variant is not None
        exact = recipe(
            self.claim.dtypes,
            engine=self.engine,
            qat=self.flow == "qat",
            per_channel=self.variant.per_channel,
            symmetric=self.variant.symmetric,
            target=target_source(self.claim) if self.variant.prelude else "",
            shares=shares(self.claim),
            fused=len(list(operators_of(self.claim.tree))) > 1,
        )
        return typical_recipe(self.claim.dtypes, exact, engine=self.engine) if self.profile == "typical" else exact

    def bounds(self, spec: Operand) -> tuple[int, int, int]:
        """Lowest and highest integer of an operand's data, and the exponent of their step."""
        assert self.variant is not None
        low, high, exponent = bounds(spec.data or self.variant.data, self.recipe.steps)
        return low, high, exponent + spec.exponent


def shares(claim: Claim) -> tuple[int, ...]:
    """The numbers of tensor arguments with which the claim's output keeps the qparams of its input."""
    entry, shared = claim.entry, ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
    by_count = entry._num_tensor_args_to_observation_type
    return tuple(count for count in ALWAYS if by_count.get(count, entry.observation_type) is shared)


def runs(backend: BackendClaims, engines: Iterable[str] = ()) -> Iterator[Run]:
    """Yield every run of a backend on `engines`, or on those that the registry names for it."""
    engines = tuple(engines) or backend.engines
    for claim in backend.claims:
        covered: list[Variant | None] = [None] if missing_operators(claim) else [*variants(claim)]
        # fixed-qparams functions quantize what they are given directly with their own result's qparams
        main = next((v for v in covered if v is not None and v.prelude), covered[0])
        for flow in flows(claim, backend.entries):
            # training changes how weights and observers come about, not what the kernels are given
            few = flow == "qat" and not is_qat_module(root_of(claim.tree))
            kept = [v for v in covered if v is None or v.core or v is main] if few else covered
            for variant in [v for v in kept if flow == "ptq" or v is None or v.name not in KERNEL_ONLY]:
                for profile in CASES if variant is main and variant else CASES[:1]:
                    for engine in engines:
                        yield Run(backend, claim, flow, variant, profile, engine)
            if main is not None:
                for side, field in constrained(claim.dtypes):
                    for engine in engines:
                        yield Run(backend, claim, flow, main.named(f"{side}.{field}"), "constraints", engine)
        if main is not None:
            for engine in engines:
                yield Run(backend, claim, flows(claim, backend.entries)[0], large(claim), "laws", engine)


def benchmarks(backend: BackendClaims, engines: Iterable[str] = (), extents: Iterable[str] = EXTENTS) -> Iterator[Run]:
    """Yield every run of a backend that is timed, with layers of these extents: of QAT only what exists nowhere else."""
    wanted = frozenset(extents)
    for claim in backend.claims:
        flow = flows(claim, backend.entries)[0]
        for extent, variant in [] if missing_operators(claim) else deployed(claim):
            for engine in (tuple(engines) or backend.engines) if extent in wanted else ():
                yield Run(backend, claim, flow, variant, BENCH, engine)


def usual(run: Run) -> bool:
    """Whether a run is one of those that are made where nobody asks for runs by name."""
    if run.engine not in AHEAD_OF_TIME or run.profile == "constraints" or run.variant is None:
        return True
    if run.profile == "laws":
        return False
    # every operator's default variant is a core one
    return run.variant.core or bool(run.variant.prelude) or run.profile == "typical"


def select(all_runs: Iterable[Run], globs: Iterable[str]) -> list[Run]:
    """Return the runs whose id matches a glob; if there are none, the usual ones. Raises UsageError for a glob that matches
    none."""
    all_runs, globs = list(all_runs), list(globs)
    if not globs:
        return [run for run in all_runs if usual(run)]
    for glob in globs:
        if not any(fnmatch.fnmatchcase(run.id, glob) for run in all_runs):
            suggestion = did_you_mean(glob, (run.id for run in all_runs))
            advice = f"{suggestion}? List" if suggestion else "list"
            raise UsageError(
                f"no run matches {glob!r}: {advice} claims with `python -m conformance claims`, ids end in @engine"
            )
    return [run for run in all_runs if any(fnmatch.fnmatchcase(run.id, glob) for glob in globs)]


def describe(run: Run) -> dict[str, Any]:
    """The fields of a row that are known before it runs."""
    claim = run.claim
    return {
        "id": run.id,
        "backend": claim.backend,
        "pattern": claim.pattern,
        "dtype_config": claim.dtype_config,
        "flow": run.flow,
        "variant": run.variant.name if run.variant else "not-covered",
        "profile": run.profile,
        "engine": run.engine,
    }
