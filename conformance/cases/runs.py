"""Runs: every claim with every variant, flow, profile and engine, in a stable order."""

import fnmatch
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from torch import nn

from conformance.configs.engines import ENGINE_TABLE, ahead_of_time, is_signed
from conformance.configs.registry import BACKENDS
from conformance.configs.spelling import EMBEDDINGS, spelled
from conformance.configs.workflows import Workflow, WorkflowConfig
from conformance.errors import UsageError
from conformance.host import guard
from conformance.results.constraints import Constraint
from conformance.results.findings.stages import BEYOND, DEGENERATE, INDICES, VIEWS
from conformance.results.profiles import (
    ASKED_FOR,
    BENCH,
    CODES,
    CONTEXTS,
    EXACT,
    IN_USE,
    OF_MAPPINGS,
    PAIRS,
    PROFILES,
    TYPICAL,
    profile_names,
)
from conformance.suggestions import did_you_mean

from .apis import api, engines_for
from .claims import BackendClaims, Claim, backend
from .combined import combined, further_inputs
from .constraints import constrained
from .contexts import in_contexts
from .operators import EXTENTS, Operand, Variant, has_weights
from .operators.fused import plain_of
from .operators.signatures import finite_everywhere
from .operators.variant import ALONE
from .quantizers import has_channels
from .ranges import bounds
from .recipes import Recipe, activation_constraints, observes_inputs, recipe, shares
from .representative import UNCERTAIN
from .sources import Model, model_source, target_source
from .variants import deployed, flows, in_tables, large, not_covered, sized, swept, variants
from .workflows import workflow_recipe, workflow_runs


def _is_plain(claim: Claim) -> bool:
    """Whether the pattern of a claim is one operator, and no fused module."""
    root, *rest = claim.operators
    return not rest and plain_of(root) == root


@cache
def _first_alike(backend: BackendClaims, claim: Claim) -> Claim:
    """The first claim about the pattern of a claim whose dtypes differ in that of activations alone."""

    def kind(one: Claim) -> tuple[object, ...]:
        return one.pattern, one.dtypes.is_dynamic, one.dtypes.weight_dtype

    return next(one for one in backend.claims if kind(one) == kind(claim))


def _compiled_before(claims: BackendClaims, claim: Claim) -> bool:
    """Whether options of a claim's pattern are compiled by TorchScript for a registered config before this one: lowered
    models without weights are the same on all engines of torch."""
    names = [*BACKENDS]
    before = names[: names.index(claims.name)] if claims.name in names else []
    return claim.dtypes.weight_dtype is None and any(claim.entry.pattern in backend(name).entries for name in before)


def _recipe(claims: BackendClaims, claim: Claim, mapping: str, *, engine: str, **settings: Any) -> Recipe:
    """The recipe of a mapping for a claim on an engine; the settings are those of `recipe`."""
    exact = recipe(
        claim.dtypes,
        engine=engine,
        by_row=spelled(claim.root).computes in EMBEDDINGS,
        shares=shares(claim.entry),
        fused=len(claim.operators) > 1,
        **settings,
    )
    return api(claims).recipe(claim, exact, mapping, engine, settings.get("context", ALONE).configured)


_recipe_alone = cache(_recipe)
"""The same without a context, which has no hash: most runs of a claim have one recipe."""

KERNEL_ONLY = ("saturates", "symmetric")
"""Variants that test kernels at the ends of their output range, which training does not affect."""

WITH_ALL_DATA = ("default", "depthwise", "scalar_left", "scalar_left_18")
"""Variants whose programs are executed on all degenerate data: depthwise convolutions and arithmetic of a number and a tensor
have kernels of their own."""


@dataclass(frozen=True, eq=False)
class Run:
    """One case on one engine: one pytest item and one row. `variant` is None if an operator is missing from the tables."""

    backend: BackendClaims
    claim: Claim
    flow: str
    variant: Variant | None
    profile: str
    engine: str
    constraint: Constraint | None = None

    @cached_property
    def id(self) -> str:
        name = self.variant.name if self.variant else "not-covered"
        return f"{self.claim.id}/{self.flow}/{name}/{self.profile}@{self.engine}"

    @property
    def key(self) -> str:
        """Seed of the data: the case id without the backend, so that backends share data. All constraints of a dtype config
        have that of the first, because they are tested on one model."""
        case = self.id.rpartition("@")[0].partition("/")[2]
        if self.constraint is None:
            return case
        first = next(constrained(self.claim.dtypes))
        return case.replace(f"/{self.constraint.name}/", f"/{first.name}/")

    @property
    def variant_has_other_operators(self) -> bool:
        """Whether the model contains anything besides a single application of the pattern."""
        assert self.variant is not None
        return self.variant.has_other_operators

    @cached_property
    def model(self) -> Model:
        assert self.variant is not None
        return model_source(self.claim, self.variant)

    @property
    def _has_own_qconfig(self) -> bool:
        """Whether operators beside the pattern must not have its qconfig, which fixes the qparams."""
        assert self.variant is not None
        fixed, context = activation_constraints(self.claim.dtypes).scale_exact_match is not None, self.variant.context
        return bool(self.variant.prelude) or context.unasked or (fixed and bool(context.neighbours))

    @property
    def _prelude_keeps(self) -> bool:
        """Whether the config lets the Hardtanh of a prelude keep qparams."""
        entry = self.backend.entries.get(nn.Hardtanh)
        return entry is None or 1 in shares(entry)

    @cached_property
    def recipe(self) -> Recipe:
        claim, variant = self.claim, self.variant
        assert variant is not None
        if isinstance(claim.entry, Workflow):
            return workflow_recipe(claim)
        made, context = (_recipe_alone, {}) if variant.context is ALONE else (_recipe, {"context": variant.context})
        return made(
            self.backend,
            claim,
            PROFILES[self.profile].mapping,
            engine=self.engine,
            qat=self.flow == "qat",
            per_channel=has_channels(claim, variant),
            symmetric=variant.symmetric,
            target=target_source(claim) if self._has_own_qconfig else "",
            prelude_keeps=self._prelude_keeps,
            **context,
        )

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of the checks that the run goes through, in order."""
        checks = api(self.backend).checks(PROFILES[self.profile])
        unasked = self.variant is not None and self.variant.context.unasked
        return (*checks, *(ASKED_FOR if self._guarded else ()), *(OF_MAPPINGS if unasked else ()))

    @property
    def _guarded(self) -> bool:
        """Whether memory is guarded: on torch's own engines, whose allocator is known, in runs of core variants, and in every
        run of a case if that is asked for."""
        if PROFILES[self.profile].kind != "case" or not ENGINE_TABLE[self.engine].native:
            return False
        return guard.switched_on() or (self.profile == EXACT.name and self.variant is not None and self.variant.core)

    @property
    def scripted(self) -> bool:
        """Whether the program is compiled by TorchScript, too: of the runs whose lowered models have the same code and
        classes, which the dtype of activations and training do not change, the first. Further engines and configs,
        whose packed weights are other objects, compile what has weights, engines by default variants; longer patterns and
        fused modules, whose options are those of the root, the default variant."""
        first = flows(self.claim, self.backend.entries)[0]
        if self.profile != EXACT.name or self.flow != first or api(self.backend).exports:
            return False
        on_first = self.engine not in self.backend.engines[1:]
        by_options = on_first and _is_plain(self.claim) and not _compiled_before(self.backend, self.claim)
        by_default = self.variant == variants(self.claim)[0] and (
            on_first or self.claim.dtypes.weight_dtype is not None
        )
        return (by_options or by_default) and _first_alike(self.backend, self.claim) is self.claim

    @property
    def threaded(self) -> bool:
        """Whether the run's program is executed on its own inputs on several threads, too: of layers in use on torch's own
        engines."""
        return PROFILES[self.profile].threaded and not ahead_of_time(self.engine)

    @cached_property
    def further(self) -> int:
        """The number of further inputs that the run's program is executed on."""
        return (
            further_inputs(plain_of(self.claim.root)) if self.profile == PAIRS.name else PROFILES[self.profile].further
        )

    @cached_property
    def degenerate(self) -> tuple[str, ...]:
        """The degenerate data that the run's program is executed on: all with `WITH_ALL_DATA`, one in turn in others. Layers
        in use have no views and nothing beyond the calibration, which may saturate, and long sequences nothing, because their
        rounding adds up. A program of an engine that lowers ahead of time accepts inputs of one memory format and dtype. Of
        one that compiles, whose kernels do not tell whether it computes in float, default variants alone have such data."""
        if self.variant is None or not PROFILES[self.profile].degenerate:
            return ()
        if ENGINE_TABLE[self.engine].default_only and self.variant.name != "default":
            return ()
        kinds = {spec.kind for spec in self.variant.operands.values()}
        names = [*DEGENERATE, *VIEWS, *BEYOND] if "activation" in kinds else []
        names += INDICES if "indices" in kinds else ()
        if self.profile == IN_USE.name:
            none = ahead_of_time(self.engine) or self.claim.root in UNCERTAIN
            kept = () if none else (*DEGENERATE, *INDICES)
            names = [name for name in names if name in kept]
        if ahead_of_time(self.engine):
            names = [name for name in names if name not in VIEWS and name != "int32"]
        if self.variant.name in WITH_ALL_DATA:
            return tuple(names)
        if self.profile == EXACT.name:
            return ()
        return (names[zlib.crc32(f"{self.key}/degenerate".encode()) % len(names)],) if names else ()

    def bounds(self, spec: Operand) -> tuple[int, int, int]:
        """Lowest and highest integer of an operand's data, and the exponent of their step."""
        assert self.variant is not None
        low, high, exponent = bounds(spec.data or self.variant.data, self.recipe.steps)
        return low, high, exponent + spec.exponent


def may_match(glob: str, start: str) -> bool:
    """Whether a glob may match an id that begins with `start`, by its part before the first wildcard."""
    literal = re.split(r"[*?[]", glob, maxsplit=1)[0]
    return literal.startswith(start) or start.startswith(literal)


def _may_have(profile: str, globs: Sequence[str]) -> bool:
    """Whether globs, if any, may match a run with this profile: the last part of one, if it has no wildcard, states it."""
    lasts = [glob.rpartition("/")[2] for glob in globs]
    return not lasts or any({*"*?["} & {*last} or last.startswith(f"{profile}@") for last in lasts)


def runs(backend: BackendClaims, engines: Iterable[str] = (), globs: Iterable[str] = ()) -> Iterator[Run]:
    """Yield every run of a backend on `engines`, or on those that the registry names for it.

    With globs, claims are left out whose runs none of them can match.
    """
    engines, globs = engines_for(backend, engines), tuple(globs)
    if isinstance(backend.config, WorkflowConfig):
        yield from (Run(backend, *of) for of in workflow_runs(backend, engines))
        return
    further = defaultdict(list)
    for profile, enumerated in ((PAIRS.name, combined), (CONTEXTS.name, in_contexts)):
        for claim, other in enumerated(backend) if _may_have(profile, globs) else ():
            further[claim].append((profile, other))
    for claim in backend.claims:
        if globs and not any(may_match(glob, claim.id + "/") for glob in globs):
            continue
        claim_flows = flows(claim, backend.entries)
        covered: list[Variant | None] = [None] if not_covered(claim) else [*variants(claim)]
        main = _main(covered)
        for flow in claim_flows:
            # training affects weights and observers, not the kernels: the core variants are enough
            few = flow == "qat" and len(claim_flows) > 1
            kept = [v for v in covered if v is None or v is main or api(backend).trains(v)] if few else covered
            for variant in [v for v in kept if flow == "ptq" or v is None or v.name not in KERNEL_ONLY]:
                for profile in profile_names("case"):
                    whole = variant is not None and variant is main and finite_everywhere(variant)
                    kinds = ("every", "default") if whole else ("every",)
                    if PROFILES[profile].variants in kinds:
                        yield from (Run(backend, claim, flow, variant, profile, engine) for engine in engines)
            if main is not None and flow == "ptq" and _goes_beyond(backend, claim):
                beyond = main.named("beyond", saturates=True)
                for engine in [engine for engine in engines if not ahead_of_time(engine)]:
                    yield Run(backend, claim, flow, beyond, TYPICAL.name, engine)
            if main is not None and not api(backend).exports:  # torch enforces constraints of configs only
                for constraint in constrained(claim.dtypes):
                    for engine in engines:
                        yield Run(backend, claim, flow, main.named(constraint.name), "constraints", engine, constraint)
        if main is not None and in_tables(claim):
            for profile, variant in sized(claim, *(any(map(of, backend.engines)) for of in (ahead_of_time, is_signed))):
                yield from (Run(backend, claim, claim_flows[0], variant, profile, engine) for engine in engines)
            for engine in () if api(backend).exports else engines:
                yield Run(backend, claim, claim_flows[0], large(claim), "laws", engine)
            for variant in swept(claim):
                # a sweep lowers a model in each turn unless torch itself has lowered it
                for engine in [engine for engine in engines if not ENGINE_TABLE[engine].default_only]:
                    yield Run(backend, claim, claim_flows[0], variant, CODES.name, engine)
        for profile, other in further[claim]:
            # options of operators that follow a layer matter to how training fuses them
            for flow in claim_flows if other.followers else claim_flows[:1]:
                yield from (Run(backend, claim, flow, other, profile, engine) for engine in engines)


def _goes_beyond(backend: BackendClaims, claim: Claim) -> bool:
    """Whether the default variant of a claim is executed on inputs beyond what calibration saw, too: a layer whose kernel
    sums products of codes, and no fused one, whose sums are the same."""
    layer = _is_plain(claim) and has_weights(claim.root)
    return not api(backend).exports and observes_inputs(claim.dtypes) and layer


def candidates(backends: Sequence[BackendClaims], engines: Iterable[str] = (), globs: Sequence[str] = ()) -> list[Run]:
    """The runs of backends; with globs, only those of the claims that a glob can match.

    If a glob matches none of them these are all runs, among which an error finds the nearest ids.
    """
    engines = tuple(engines)
    if globs:
        near = [run for backend in backends for run in runs(backend, engines, globs)]
        if all(any(fnmatch.fnmatchcase(run.id, glob) for run in near) for glob in globs):
            return near
    return [run for backend in backends for run in runs(backend, engines)]


def _main(covered: Sequence[Variant | None]) -> Variant | None:
    """The default variant of a claim. For a fixed-qparams function it is one with a prelude, because without one the model's
    input is quantized with the qparams of the function's own result."""
    return next((variant for variant in covered if variant is not None and variant.prelude), covered[0])


def default_form(run: Run) -> Run:
    """The run of the same claim, flow and engine with the default variant and exact data."""
    return replace(run, variant=_main(variants(run.claim)), profile="exact", constraint=None)


def benchmarks(backend: BackendClaims, engines: Iterable[str] = (), extents: Iterable[str] = EXTENTS) -> Iterator[Run]:
    """Yield every run of a backend that is timed, on layers of these extents; in the qat flow, only QAT modules."""
    wanted = frozenset(extents)
    for claim in backend.claims:
        flow = flows(claim, backend.entries)[0]
        for extent, variant in deployed(claim) if in_tables(claim) and not not_covered(claim) else ():
            for engine in engines_for(backend, engines) if extent in wanted else ():
                yield Run(backend, claim, flow, variant, BENCH.name, engine)


def usual(run: Run) -> bool:
    """Whether a run is selected without `--case`."""
    unasked = PROFILES[run.profile].unasked
    if ENGINE_TABLE[run.engine].default_only and run.variant is not None:
        first = flows(run.claim, run.backend.entries)[0]
        return (run.profile, run.flow) == (EXACT.name, first) and run.variant == _main(variants(run.claim))
    if run.profile == CODES.name and not ENGINE_TABLE[run.engine].native:
        return False  # lowers a model in each turn
    if not ahead_of_time(run.engine) or run.variant is None or unasked == "always":
        return True
    # every operator's default variant is a core one
    return unasked == "core variants" and (run.variant.core or bool(run.variant.prelude))


def select(all_runs: Iterable[Run], globs: Iterable[str]) -> list[Run]:
    """Return the runs whose id matches a glob; without globs, the usual ones.

    Raises UsageError for a glob that matches no run.
    """
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
    """The fields of a row that are known before the run."""
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
