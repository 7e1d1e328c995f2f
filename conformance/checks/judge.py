"""The table of checks, and the judge that takes a run through stages and checks to its row."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib import import_module

from conformance.cases.runs import Run
from conformance.configs.workflows import Workflow
from conformance.engines.registry import engine
from conformance.goldens.store import Store
from conformance.models import fx
from conformance.models.build import Subject
from conformance.results.findings import Finding
from conformance.results.findings.stability import RepetitionShape, RepetitionValues
from conformance.results.findings.stages import Lies
from conformance.results.findings.values import CodesDiffer, CodesVary, LowSqnr
from conformance.results.profiles import CHECK_MODULES
from conformance.results.rows import Row
from conformance.stopwatch import Stopwatch

from . import workflows
from .evidence import Evidence, Outcome, row_of
from .stages import Pipeline

CHECKS: dict[str, Callable[[Evidence], Outcome]] = {
    name: getattr(import_module(f".{module}", __package__), name) for name, module in CHECK_MODULES.items()
}
"""The checks by name, in the order of their outcomes in a row."""


def vary(findings: Iterable[Finding]) -> bool:
    """Whether the findings of a run say that its outputs differ from run to run."""
    return any(
        isinstance(finding, RepetitionValues | RepetitionShape) and finding.repetition == "second run"
        for finding in findings
    )


def without_chance(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings of a run whose outputs differ from run to run, without the figures that the next run would not have.

    Other repetitions that change values directly after a second run that does are left out: whether they do is chance.
    """
    after_second_run = False
    for finding in findings:
        if isinstance(finding, RepetitionValues):
            if not after_second_run:
                yield replace(finding, changed=None, total=None)
            after_second_run = after_second_run or finding.repetition == "second run"
            continue
        after_second_run = False
        if isinstance(finding, Lies):
            continue
        if isinstance(finding, CodesDiffer) and finding.check == "numerics":  # torch's reference model does not vary
            yield CodesVary(finding.check, finding.output)
        elif isinstance(finding, LowSqnr):
            yield replace(finding, sqnr=None)
        else:
            yield finding


class Judge:
    """Takes runs through the stages and the checks. `watch` has the seconds that stages spend in torch."""

    def __init__(self, store: Store | None = None) -> None:
        self.watch, self.store = Stopwatch(), store or Store()
        self._pipeline = Pipeline(self.watch, self.store)

    def use(self, subject: Callable[[Run], Subject]) -> None:
        """Judge the models and data that a function makes of runs, in place of their own."""
        self._pipeline.subject = subject

    def evidence(self, run: Run) -> Evidence:
        """Take a run through every stage that it reaches. The engine has to be available."""
        with engine(run.engine).scope(), fx.quiet():
            if isinstance(run.claim.entry, Workflow):
                return workflows.evidence(run, self.watch)
            return self._pipeline.evidence(run)

    def row(self, run: Run) -> tuple[Row, str]:
        """Judge a run. Returns its row, without `known`, and the reason why it has no usable golden, or an empty string."""
        evidence, row = self.judged(run)
        return row, evidence.expectation.unusable

    def judged(self, run: Run) -> tuple[Evidence, Row]:
        """Judge a run and return the evidence and its row, without `known`."""
        start = time.perf_counter()
        evidence = self.evidence(run)
        checks = workflows.CHECKS if isinstance(run.claim.entry, Workflow) else CHECKS
        outcomes = {name: checks[name](evidence) for name in run.checks}
        findings = tuple(finding for outcome in outcomes.values() for finding in outcome.findings)
        comparison = outcomes["numerics"].comparison
        sqnr_db = outcomes["accuracy"].sqnr_db if "accuracy" in outcomes else None
        if vary(findings):
            comparison, sqnr_db, findings = None, None, tuple(without_chance(findings))
        row = row_of(
            run,
            start,
            {name: outcome.result for name, outcome in outcomes.items()},
            findings,
            execution=evidence.back.execution,
            comparison=comparison,
            sqnr_db=sqnr_db,
            remark=evidence.guarded.reason if evidence.guarded else "",
        )
        return evidence, row
