"""Batches of runs judged in isolated processes, one row for each run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

import torch

from conformance.cases.claims import BackendClaims, backend
from conformance.cases.runs import Run, describe, runs
from conformance.cases.variants import not_covered
from conformance.checks.judge import Judge
from conformance.engines.registry import engine
from conformance.goldens.golden import name_of
from conformance.goldens.store import GoldenError, Store
from conformance.host.isolation import Death, Done, Raised, run_isolated
from conformance.models import apis, build, fx
from conformance.models.scripting import read_graphs
from conformance.models.taken import take_shortcuts
from conformance.properties.codes import judge as codes
from conformance.properties.metamorphic import relations
from conformance.results.diagnostics import Details
from conformance.results.findings import detail_of
from conformance.results.findings.stages import Crashes, Undefined
from conformance.results.profiles import PROFILES
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict

from . import diagnose


@cache
def warm_up() -> None:
    """Make torch do its lazy imports in this process, before the fork, so that no child has to.

    torch is limited to one thread, so that it starts no thread pool, which a forked child would lack; one thread is also
    fastest for small models. oneDNN is switched off meanwhile, because on ARM it has a thread pool of its own.
    """
    torch.set_num_threads(1)
    run = next(run for run in runs(backend("fbgemm"), ["x86"]) if run.variant is not None)
    with fx.quiet(), torch.backends.mkldnn.flags(enabled=False):
        subject = build.subject(run)
        prepared = fx.prepare(subject, run.backend.config)
        fx.calibrate(prepared, subject)
        fx.reference(prepared, run.backend.config)
    read_graphs()


@dataclass
class Judged:
    """A row with the seconds that its run spent in torch and its diagnostics. `unusable` is the reason why the run has no
    usable golden, if it needs one."""

    row: Row
    torch_seconds: float = 0.0
    unusable: str = ""
    details: Details | None = None


MEMORY_FAULTS = ("SIGSEGV", "SIGBUS", "SIGABRT")


def crashed_row(run: Run, death: Death) -> Row:
    """The row of a run whose process died, with the same finding every time.

    How a process with a damaged heap ends is chance: by one of several signals, or not at all, because the allocator may
    deadlock while it reports the damage.
    """
    reason = death.reason
    if reason.startswith((*MEMORY_FAULTS, "hangs")):
        reason = f"memory fault ({', '.join(MEMORY_FAULTS)}) or hang"
    findings = (Crashes("crashes", reason),)
    return Row(**describe(run), verdict=Verdict.CRASHES, detail=detail_of(findings), findings=findings)


def undefined_row(run: Run, reason: str) -> Row:
    """The row of a run whose outcome is undefined, the same whatever it was."""
    findings = (Undefined("undefined", reason),)
    return Row(**describe(run), verdict=Verdict.UNDEFINED, detail=detail_of(findings), findings=findings)


def unjudged_row(run: Run, reason: str) -> Row:
    """The row of a run that cannot be compared with its golden, for this reason."""
    return Row(**describe(run), verdict=Verdict.UNJUDGED, detail=reason)


def without_evidence(run: Run) -> Details:
    """Diagnostics of a run that left no evidence, because it tests a property or because its process died."""
    graphs = diagnose.converted(run) if run.constraint is None else {}
    return Details(run.id, {**diagnose.setting(run), **graphs})


def crashed_details(run: Run) -> Details:
    """Diagnostics of a run whose process died: its models as far as they can be converted, without running a kernel."""
    (outcome,) = run_isolated([run], without_evidence)
    return outcome.value if isinstance(outcome, Done) else Details(run.id, diagnose.setting(run))


def make_ready(backends: Iterable[BackendClaims], engines: Iterable[str]) -> None:
    """Compute once what children that run claims on engines have in common. Their quantizers have to be available."""
    warm_up()
    for claims in backends:
        apis.of(claims).warm_up(claims)
    for name in engines:
        engine(name).warm_up()


def judge_runs(
    batch: Sequence[Run], unavailable: Callable[[str], str | None], store: Store | None = None
) -> list[Judged | Raised]:
    """Judge a batch of runs in isolated processes, by the goldens of `store` (default: those in the repository).

    `unavailable` returns the reason why an engine is unavailable, or None. The results are in the order of the batch; the one
    of a run on which the suite itself fails is Raised.
    """
    store = store or Store()
    results: dict[str, Judged | Raised] = {}
    possible = []
    for run in batch:
        if (row := _unavailable_row(run, unavailable)) is not None:
            results[run.id] = Judged(row)
        else:
            possible.append(run)
    make_ready({run.backend for run in possible}, dict.fromkeys(run.engine for run in possible))
    with suppress(GoldenError):  # the run that needs an unreadable golden reports it
        store.preload(name_of(run) for run in possible if PROFILES[run.profile].golden == "stored")
    judge = Judge(store)
    properties: dict[str, Callable[[Run], Row]] = {
        "laws": partial(relations.row, judge.watch),
        "codes": partial(codes.row, judge.watch),
    }
    if any(run.profile == "constraints" for run in possible):
        # loads hypothesis, which takes longer than another run
        from conformance.properties.constraints.enforcement import Enforcement

        properties["constraints"] = Enforcement(judge.watch).row
    for run, outcome in zip(possible, run_isolated(possible, partial(_judge, judge, properties)), strict=True):
        if isinstance(outcome, Done):
            results[run.id] = outcome.value
        elif isinstance(outcome, Death):
            results[run.id] = Judged(crashed_row(run, outcome), details=crashed_details(run))
        else:
            results[run.id] = outcome
    return [results[run.id] for run in batch]


def _unavailable_row(run: Run, unavailable: Callable[[str], str | None]) -> Row | None:
    """The row of a run that cannot be executed here, or None."""
    if run.variant is None:
        return Row(**describe(run), verdict=Verdict.UNAVAILABLE, detail=f"not covered: {not_covered(run.claim)}")
    reason = unavailable(run.engine)
    if reason and PROFILES[run.profile].needs_engine:
        return Row(**describe(run), verdict=Verdict.UNAVAILABLE, detail=f"engine {run.engine}: {reason}")
    if missing := apis.of(run.backend).unavailable(run.backend, run):
        return Row(**describe(run), verdict=Verdict.UNAVAILABLE, detail=missing)
    return None


def _judge(judge: Judge, properties: Mapping[str, Callable[[Run], Row]], run: Run) -> Judged:
    """Judge one run in this process; `properties` makes the row of a run that tests a property, by profile."""
    take_shortcuts()
    before = judge.watch.seconds
    if run.profile not in properties:
        evidence, row = judge.judged(run)
        seconds = judge.watch.seconds - before
        return Judged(row, seconds, evidence.expectation.unusable, diagnose.details(evidence, row))
    row = properties[run.profile](run)
    return Judged(row, judge.watch.seconds - before, details=without_evidence(run) if row.failed else None)
