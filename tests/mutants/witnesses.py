"""Witnesses: ordinary runs and drawn samples that may notice a mutant, and how they are judged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from conformance.cases.families import Family
from conformance.cases.runs import Run
from conformance.checks.judge import Judge
from conformance.checks.likeness import Likeness
from conformance.configs.engines import ENGINE_TABLE
from conformance.execution.batch import Judged
from conformance.fuzz.campaign import Campaign
from conformance.fuzz.samples import Sample, run_of
from conformance.host.isolation import Done
from conformance.models import apis
from conformance.properties.codes import judge as codes
from conformance.properties.metamorphic import relations
from conformance.results.profiles import CODES, LAWS
from conformance.results.rows import Row
from conformance.selection import Selection

from .injection import INJECTION, Handler


@dataclass(frozen=True, eq=False)
class Witness:
    """A run that may notice a mutant.

    `sample` and `campaign` are those of a drawn one; `likeness` has the ledger for an ordinary one.
    """

    run: Run
    likeness: Likeness = field(default_factory=Likeness)
    sample: Sample | None = None
    campaign: Campaign | None = None

    @property
    def id(self) -> str:
        return self.run.id if self.sample is None else f"drawn {self.run.id}"

    @property
    def listed(self) -> frozenset[str]:
        """The checks in which the ledger expects the run to fail."""
        return frozenset(check for entry in self.likeness.coverage.of(self.run.id) for check in entry.check)

    def alarms(self, row: Row, selection: Selection) -> frozenset[str]:
        """The checks in which a row contradicts the ledger."""
        if self.campaign is not None and self.sample is not None:
            deviation = self.campaign._deviation(self.sample, Done(Judged(row)))
            return deviation.checks if deviation is not None else frozenset()
        if self.likeness.expectation(self.run, row, selection.host).expected:
            return frozenset()
        # a check that is listed may have findings of kinds that no entry states
        return (row.failed ^ self.listed) or row.failed


def row_of(judge: Judge, run: Run, handler: Handler | None) -> Row:
    """The row of a run, of a case or of relations, with the calls of the engine going through a handler."""
    with INJECTION.handling(handler):
        if run.profile == LAWS.name:
            return relations.row(judge.watch, run)
        return codes.row(judge.watch, run) if run.profile == CODES.name else judge.row(run)[0]


def ordinary(selection: Selection) -> list[Witness]:
    """The runs of an ordinary invocation that execute kernels on this host, without those that are known to crash, and those
    whose programs take seconds."""
    runs = [
        run
        for run in selection.runs
        if run.variant is not None
        and run.profile != "constraints"
        and run.id not in selection.crashing
        and selection.unavailable[run.engine] is None
        and not ENGINE_TABLE[run.engine].default_only
        and apis.of(run.backend).unavailable(run.backend, run) is None
    ]
    likeness = Likeness(selection.applying)
    return [Witness(run, likeness) for run in runs]


def drawn(families: Iterable[Family], samples: Mapping[str, Sequence[Sample]], selection: Selection) -> list[Witness]:
    """The samples of each family, by its id, as witnesses."""
    witnesses = []
    for family in families:
        campaign = Campaign(family, selection.applying)
        witnesses += [
            Witness(run_of(family.backend, sample), sample=sample, campaign=campaign) for sample in samples[family.id]
        ]
    return witnesses
