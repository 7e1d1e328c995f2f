"""One invocation: what is selected, what the host is, and where the rows go."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import torch

from conformance.cases.claims import backend
from conformance.cases.runs import Run, describe, runs
from conformance.cases.sources import missing_operators
from conformance.checks.judge import Judge
from conformance.engines.registry import engine
from conformance.goldens.golden import name_of
from conformance.goldens.store import GoldenError, Store
from conformance.host.isolation import Death, Done, Raised, run_isolated
from conformance.models import build, fx
from conformance.properties.constraints import enforcement
from conformance.properties.metamorphic import relations
from conformance.results.diagnostics import Details
from conformance.results.profiles import PROFILES
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict

from . import diagnose

BATCH = 32
"""Runs per child: a fork and its first kernels cost some 60 ms, a death costs the batch again."""


@cache
def warm_up() -> None:
    """Let torch do its late imports here, before the fork, and not in every child.

    With one thread nothing starts a thread pool that a child would miss, but for oneDNN on ARM, which has its own; one run a
    core is also what suits small models.
    """
    torch.set_num_threads(1)
    run = next(run for run in runs(backend("fbgemm"), ["x86"]) if run.variant is not None)
    with fx.quiet(), torch.backends.mkldnn.flags(enabled=False):
        given = build.subject(run)
        prepared = fx.prepare(given, run.backend.config)
        fx.calibrate(prepared, given)
        fx.reference(prepared, run.backend.config)


@dataclass
class Judged:
    """A row with the seconds that its run spent in torch, and what there is to see of it; `unusable` says why it could not
    be held to a golden."""

    row: Row
    torch_seconds: float = 0.0
    unusable: str = ""
    details: Details | None = None


MEMORY_FAULTS = ("SIGSEGV", "SIGBUS", "SIGABRT")


def crash(death: Death) -> str:
    """How a run died, in the same words every time: which way a process with a damaged heap ends is chance.

    The allocator may also wait for itself forever, while it tells of the damage.
    """
    if death.reason.startswith((*MEMORY_FAULTS, "hangs")):
        return f"crashes: memory fault ({', '.join(MEMORY_FAULTS)}) or hang"
    return f"crashes: {death.reason}"


def deviation(run: Run) -> Details:
    """What there is to see of a run that has left no evidence: one that breaks a property, or dies."""
    graphs = diagnose.converted(run) if PROFILES[run.profile].needs_engine else {}
    return Details(run.id, {**diagnose.setting(run), **graphs})


def crashed(run: Run) -> Details:
    """What there is to see of a run that died: how far it comes without running a kernel, which may be where it dies."""
    (outcome,) = run_isolated([run], deviation)
    return outcome.value if isinstance(outcome, Done) else Details(run.id, diagnose.setting(run))


PROPERTY = {"constraints": enforcement.row, "laws": relations.row}
"""What makes the row of a run that tries a property, by profile."""


def judge_runs(
    batch: Sequence[Run], unavailable: Callable[[str], str | None], store: Store | None = None
) -> list[Judged | Raised]:
    """Judge a batch of runs, isolated, in order, by the goldens of `store` (default: those in the repository).

    A run on which the suite itself fails is Raised.
    """
    store = store or Store()
    results: dict[str, Judged | Raised] = {}
    possible = []
    for run in batch:
        reason = unavailable(run.engine)
        if run.variant is None:
            named = ", ".join(missing_operators(run.claim)) or run.claim.pattern
            lacking = f"not covered: no entry for {named} in conformance/cases/operators/"
            results[run.id] = Judged(Row(**describe(run), verdict=Verdict.UNAVAILABLE, detail=lacking))
        elif reason and PROFILES[run.profile].needs_engine:
            results[run.id] = Judged(
                Row(**describe(run), verdict=Verdict.UNAVAILABLE, detail=f"engine {run.engine}: {reason}")
            )
        else:
            possible.append(run)
    warm_up()
    for name in dict.fromkeys(run.engine for run in possible):
        engine(name).warm_up()
    with suppress(GoldenError):  # what cannot be read is said by the run that needs it
        store.preload(name_of(run) for run in possible if PROFILES[run.profile].golden == "stored")
    judge = Judge(store)

    def work(run: Run) -> Judged:
        before = judge.watch.seconds
        if PROFILES[run.profile].kind == "case":
            evidence, row = judge.judged(run)
            seconds = judge.watch.seconds - before
            return Judged(row, seconds, evidence.unusable, diagnose.details(evidence, row))
        row = PROPERTY[run.profile](judge, run)
        return Judged(row, judge.watch.seconds - before, details=deviation(run) if row.failed else None)

    for run, outcome in zip(possible, run_isolated(possible, work), strict=True):
        if isinstance(outcome, Done):
            results[run.id] = outcome.value
        elif isinstance(outcome, Death):
            row = Row(**describe(run), verdict=Verdict.CRASHES, detail=crash(outcome))
            results[run.id] = Judged(row, details=crashed(run))
        else:
            results[run.id] = outcome
    return [results[run.id] for run in batch]
