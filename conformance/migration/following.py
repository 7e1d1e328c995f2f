"""A claim followed through FX and through PT2E with the same model and data: two rows, and how far the results are apart."""

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import torch

from conformance.bench.timer import Pace, calls_a_round, interleaved
from conformance.cases.claims import BackendClaims, Claim, backend
from conformance.cases.declarations import connected
from conformance.cases.recipes import QUANTIZED
from conformance.cases.runs import Run, default_form
from conformance.cases.variants import deployed, flows, in_tables, not_covered
from conformance.checks.comparison import FLOAT32
from conformance.checks.evidence import Evidence
from conformance.checks.judge import Judge
from conformance.configs.engines import ENGINES, SUCCESSORS
from conformance.configs.quantizer import Declaration
from conformance.engines.registry import engine
from conformance.execution.batch import make_ready
from conformance.host.isolation import Death, Raised, run_isolated
from conformance.models import apis, build, fx, pt2e
from conformance.models.build import Subject
from conformance.models.taken import take_shortcuts
from conformance.models.trace import Output
from conformance.results.migrations import Distance, Migrated, Outcome
from conformance.results.profiles import BENCH, GENERATED
from conformance.results.rows import Row
from conformance.results.severity import Severity, assessment

from .counterparts import Counterpart, counterpart, plain

TIE = 0.5 + 2.0**-6
"""Distance in steps up to which a result in float has the code that it is compared with: at a tie it has both."""


MOST_TEXT = 300
"""Characters that are kept of a row's sentence."""

UNTOUCHED = ("not-annotated", "not-observed")
"""Kinds of findings of what the quantizer has left in float."""


@dataclass(frozen=True, eq=False)
class Job:
    """A claim with the engine that runs its config."""

    claims: BackendClaims
    claim: Claim
    engine: str

    @property
    def id(self) -> str:
        return f"{self.claim.id}@{self.engine}"

    @property
    def is_plain(self) -> bool:
        """Whether the pattern has no fused or QAT module, so that FX can run the model that is exported."""
        return plain(self.claim.tree) is self.claim.tree


def jobs(names: Sequence[str] = tuple(ENGINES)) -> Iterator[Job]:
    """Yield every claim of backends with every engine of theirs."""
    for name in names:
        claims = backend(name)
        yield from (Job(claims, claim, used) for claim in claims.claims for used in claims.engines)


def followed(chosen: Sequence[Job]) -> Iterator[Migrated]:
    """Follow claims, each quantizer's in processes of its own: one changes the compiler's configuration for its process.

    Raises RuntimeError if the suite itself fails on one.
    """
    by_successor: dict[tuple[str, str], list[Job]] = {}
    for job in chosen:
        by_successor.setdefault(SUCCESSORS[job.claims.name], []).append(job)
    parts = [[job.id for job in part] for members in by_successor.values() for part in _halves(members)]
    # a process for each part, which has computed nothing before it forks
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), max_tasks_per_child=1) as pool:
        for items in pool.map(_followed, parts):
            yield from items


def _halves(members: Sequence[Job]) -> Iterator[list[Job]]:
    """Divide jobs for two processes. The engines of a claim stay together."""
    middle = next(
        (n for n in range(len(members) // 2, len(members)) if members[n].claim is not members[n - 1].claim), 0
    )
    yield from (part for part in ([*members[:middle]], [*members[middle:]]) if part)


def _followed(ids: Sequence[str]) -> list[Migrated]:
    """Follow the claims of jobs with these ids, which have one quantizer, each isolated from this process."""
    by_id = {job.id: job for job in jobs()}
    part = [by_id[one] for one in ids]
    quantizer, used = SUCCESSORS[part[0].claims.name]
    claims = backend(quantizer)
    if apis.of(claims).unavailable(claims) is None:
        make_ready([claims], [used])
    items = []
    for job, outcome in zip(part, run_isolated(part, _Follower().follow), strict=True):
        if isinstance(outcome, Raised):
            raise RuntimeError(f"{job.id} cannot be followed: {outcome.traceback}")
        if isinstance(outcome, Death):
            items.append(_unfollowed(job, Outcome.WRONG, f"the process ends: {outcome.reason}"))
        else:
            items.append(outcome.value)
    return items


def _unfollowed(job: Job, outcome: Outcome, text: str) -> Migrated:
    flow = flows(job.claim, job.claims.entries)[0]
    return Migrated(job.claim.id, job.engine, "", flow, *SUCCESSORS[job.claims.name], False, outcome, pt2e=text)


class _Follower:
    """Follows one claim after the other in one process."""

    def __init__(self) -> None:
        self.last: tuple[tuple[object, ...], tuple[Evidence, Row]] | None = None

    def follow(self, job: Job) -> Migrated:
        take_shortcuts()
        found = counterpart(job.claims, job.claim)
        if found is None:
            return _unfollowed(job, Outcome.NOT_OFFERED, "the quantizer has no weights alone and no float16")
        if reason := not_covered(job.claim) or self._missing(found):
            return _unfollowed(job, Outcome.UNAVAILABLE, reason)
        fx_evidence, fx_row = self._judged(self._fx_run(job, found))
        evidence, row = self._judged_once(self._pt2e_run(found), fx_evidence.front.subject if job.is_plain else None)
        if untouched(row):
            fx_row = self._judged(self._fx_run(job, found, as_quantizer=False))[1]
        apart = distance(fx_evidence, evidence) if job.is_plain else None
        outcome = outcome_of(fx_row, row, apart)
        timed = job.is_plain and outcome in (Outcome.KEPT, Outcome.OTHER)
        return Migrated(
            job.claim.id,
            job.engine,
            found.claim.pattern,
            found.flow,
            *SUCCESSORS[job.claims.name],
            found.promised,
            outcome,
            fx_row.detail[:MOST_TEXT],
            row.detail[:MOST_TEXT],
            apart,
            self._ratio(job, found) if timed else None,
        )

    def _judged(self, run: Run, shared: Subject | None = None) -> tuple[Evidence, Row]:
        """Judge a run, with the model and the data of another one if there is one."""
        judge = Judge()
        if shared is not None:
            judge.use(lambda of: of_run(of, shared))
        return judge.judged(run)

    def _missing(self, found: Counterpart) -> str | None:
        return pt2e.unavailable(pt2e.spec_of(found.claims)) or engine(found.engine).unavailable()

    def _judged_once(self, run: Run, shared: Subject | None) -> tuple[Evidence, Row]:
        """Judge a run through PT2E, with the model and the data of the run through FX if they can be shared. Engines of one
        backend that have the same follow each other."""
        key = (run.backend.name, run.claim.pattern, run.claim.dtype_config, run.flow, shared and shared.run.key)
        if self.last is None or self.last[0] != key:
            self.last = key, self._judged(run, shared)
        return self.last[1]

    def _pt2e_run(self, found: Counterpart) -> Run:
        run = default_form(Run(found.claims, found.claim, found.flow, None, GENERATED.name, found.engine))
        return replace(run, profile=GENERATED.name)

    def _fx_run(self, job: Job, found: Counterpart, *, as_quantizer: bool = True) -> Run:
        """The run through FX of the default form, in the context that the quantizer requires, and with weights quantized per
        channel if the quantizer quantizes them so, unless it leaves the pattern in float (`as_quantizer`)."""
        run = default_form(Run(job.claims, job.claim, found.flow, None, GENERATED.name, job.engine))
        assert run.variant is not None
        assert isinstance(found.claim.entry, Declaration)
        variant = connected(found.claim.entry, run.variant) if job.is_plain else run.variant
        if as_quantizer and found.claim.entry.per_channel and job.claim.dtypes.weight_dtype in QUANTIZED:
            variant = variant.named(variant.name, per_channel=True)
        return replace(run, variant=variant, profile=GENERATED.name)

    def _ratio(self, job: Job, found: Counterpart) -> float | None:
        """Latency through PT2E divided by that through FX, on the smallest layer of a network; None if there is none."""
        if not in_tables(job.claim) or found.claim.entry.behind:  # type: ignore[attr-defined]
            return None
        variant = next((variant for _, variant in deployed(job.claim)), None)
        if variant is None:
            return None
        new = Run(found.claims, found.claim, found.flow, variant, BENCH.name, found.engine)
        old = Run(job.claims, job.claim, found.flow, variant, BENCH.name, job.engine)
        calls: list[Callable[[], object]] = []
        with torch.no_grad(), fx.quiet():
            shared = build.subject(old)
            for run in (new, old):
                with engine(run.engine).scope():
                    calls.append(_program(run, shared))
            return _latency(calls)


def _program(run: Run, shared: Subject) -> Callable[[], object]:
    """A call of a run's program, made from a shared model and its data."""
    subject = of_run(run, shared)
    api = apis.of(subject.run.backend)
    prepared = api.prepare(subject)
    api.calibrate(prepared, subject)
    lowering = engine(run.engine)
    program = lowering.compile(lowering.convert(prepared, run.backend.config), subject.fresh_inputs())
    inputs = subject.fresh_inputs()
    return lambda: program(*inputs)


def _latency(calls: Sequence[Callable[[], object]]) -> float:
    pace = Pace.of_torch()
    times = [calls_a_round(call, pace.clock) for call in calls]
    (new, old), _ = interleaved(calls, times, pace)
    return round(min(new) / min(old), 3)


def of_run(run: Run, subject: Subject) -> Subject:
    """A subject with the run and the QConfig of another one, of which it has the model and the data."""
    own = build.subject(run)
    return replace(own, model=copy.deepcopy(subject.model), calibration=subject.calibration, inputs=subject.inputs)


def outcome_of(fx_row: Row, row: Row, apart: Distance | None) -> Outcome:
    """What became of a claim, from its rows through FX and through PT2E and how far their results are apart."""
    worked, works = assessment(fx_row) is None, assessment(row)
    if works is None:
        if not worked:
            return Outcome.GAINED
        return Outcome.OTHER if apart is not None and apart.mismatched else Outcome.KEPT
    if not worked:
        return Outcome.NEITHER
    if untouched(row):
        return Outcome.NOT_ANNOTATED
    by_severity = {Severity.FLOAT: Outcome.FLOAT, Severity.REFUSES: Outcome.REFUSES}
    return by_severity.get(works.severity, Outcome.WRONG)


def untouched(row: Row) -> bool:
    """Whether the quantizer has left a model, or a part of it, in float."""
    return any(finding.kind in UNTOUCHED for finding in row.findings)


def distance(fx_evidence: Evidence, evidence: Evidence) -> Distance | None:
    """How far the outputs are apart; None if a side has not executed, or their shapes differ."""
    old, new = fx_evidence.back.execution, evidence.back.execution
    if old is None or new is None or len(old.outputs) != len(new.outputs):
        return None
    pairs = [*zip(old.outputs, new.outputs, strict=True)]
    if any(before.values.shape != after.values.shape for before, after in pairs):
        return None
    apart = [(before.values.double() - after.values.double()).abs() for before, after in pairs]
    total = sum(one.numel() for one in apart)
    if not total:
        return None
    greatest = max((float(before.values.abs().max()) for before, _ in pairs if before.values.numel()), default=0.0)
    relative = max(float(one.max()) for one in apart if one.numel()) / (greatest or 1.0)
    in_float = any(after.quantized is None for _, after in pairs)
    if any(before.quantized is None for before, _ in pairs):
        mismatched = sum(int((one > greatest * FLOAT32).sum()) for one in apart)
        return Distance(total, mismatched, None, round(relative, 6), in_float)
    steps = torch.cat([one.flatten() / _scale(before) for one, (before, _) in zip(apart, pairs, strict=True)])
    mismatched = int((steps > (TIE if in_float else 0.5)).sum())
    return Distance(total, mismatched, round(float(steps.max()), 3), round(relative, 6), in_float)


def _scale(output: Output) -> float:
    assert output.quantized is not None
    return float(output.quantized.q_scale())
