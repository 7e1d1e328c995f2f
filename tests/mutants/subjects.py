"""The subjects of a campaign: ordinary runs and drawn samples, what the ledger expects of each, and the judgement of one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from conformance.cases.runs import Run
from conformance.checks.judge import Judge
from conformance.execution.batch import crashed_row
from conformance.fuzz.campaign import Campaign
from conformance.fuzz.samples import Family, Sample, run_of
from conformance.host.isolation import Death, Done
from conformance.properties.metamorphic import relations
from conformance.results.ledger import Entry, entries_by_run, judge
from conformance.results.rows import Row
from conformance.selection import Selection

from .injection import INJECTION, Handler


@dataclass(frozen=True, eq=False)
class Subject:
    """A run that may notice a mutant. `sample` and `campaign` are those of a drawn one; `entries` cover an ordinary one."""

    run: Run
    entries: tuple[Entry, ...] = ()
    sample: Sample | None = None
    campaign: Campaign | None = None

    @property
    def id(self) -> str:
        return self.run.id if self.sample is None else f"drawn {self.run.id}"

    @property
    def listed(self) -> frozenset[str]:
        """The checks in which the ledger expects the run to fail."""
        return frozenset(check for entry in self.entries for check in entry.check)

    def alarms(self, row: Row, selection: Selection) -> frozenset[str]:
        """The checks in which a row contradicts the ledger."""
        if self.campaign is not None and self.sample is not None:
            deviation = self.campaign._deviation(self.sample, Done((row, "")))
            return deviation.checks if deviation is not None else frozenset()
        if judge(row, self.entries, selection.host).expected:
            return frozenset()
        return row.failed ^ self.listed

    def crashed(self, death: Death) -> Row:
        return crashed_row(self.run, death)


class Jury:
    """Judges subjects in this process, with the calls of the engine going through a handler."""

    def __init__(self, selection: Selection) -> None:
        self.judge = Judge(selection.store)

    def row(self, subject: Subject, handler: Handler | None) -> Row:
        """The row of a subject. Expectations and reference models are those of the kernels as they are."""
        run = subject.run
        if run.profile == "laws":
            with INJECTION.handling(handler):
                return relations.row(self.judge.watch, run)
        evidence = self.judge.evidence
        self.judge.evidence = partial(_handled, evidence, handler)  # type: ignore[method-assign]
        try:
            return self.judge.row(run)[0]
        finally:
            self.judge.evidence = evidence  # type: ignore[method-assign]


def _handled(evidence, handler, run):  # type: ignore[no-untyped-def]
    with INJECTION.handling(handler):
        return evidence(run)


def ordinary(selection: Selection) -> list[Subject]:
    """The runs of an ordinary invocation that execute kernels on this host, without those that are known to crash."""
    runs = [
        run
        for run in selection.runs
        if run.variant is not None
        and run.profile != "constraints"
        and run.id not in selection.crashing
        and selection.unavailable[run.engine] is None
    ]
    entries = entries_by_run(selection.applying, (run.id for run in runs))
    return [Subject(run, tuple(entries.get(run.id, ()))) for run in runs]


def drawn(families: Iterable[Family], samples: Mapping[str, Sequence[Sample]], selection: Selection) -> list[Subject]:
    """The samples of each family, by its id, as subjects."""
    subjects = []
    for family in families:
        campaign = Campaign(family, selection.applying)
        subjects += [
            Subject(run_of(family.backend, sample), sample=sample, campaign=campaign) for sample in samples[family.id]
        ]
    return subjects
