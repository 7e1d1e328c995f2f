"""What the ledger says about runs that it does not name: entries for fixed runs cover those that are like them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from conformance.cases.features import features_of
from conformance.cases.runs import Run
from conformance.cases.similar import similar_ids
from conformance.results.findings.annotations import NotAnnotated
from conformance.results.findings.stages import Raises
from conformance.results.findings.structure import RanInFloat
from conformance.results.findings.values import OutputQparams
from conformance.results.known import Coverage, Entry, Host
from conformance.results.ledger import Expectation, judge, own_entries
from conformance.results.profiles import PROFILES
from conformance.results.rows import Row

from .lowering import EARLIER

CHANNELS_LAST = frozenset({"channels_last"})

IN_FLOAT = frozenset({NotAnnotated.kind, RanInFloat.kind})
"""The kinds of findings that tell of a layer that is left in float."""


class Likeness:
    """The entries of a ledger that cover runs by their features; `entries` are those for this host."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.coverage = Coverage(entries)
        self._named = cache(self.coverage.of)

    def _covering(self, run: Run, ids: Iterable[str]) -> list[Entry]:
        """The entries for any of these runs, without those for runs that lack a feature of this one."""
        found = {id(entry): entry for run_id in ids for entry in self._named(run_id)}
        present = features_of(run)
        return [entry for entry in found.values() if entry.unless.isdisjoint(present)]

    def _listed(self, run: Run, ids: Iterable[str], row: Row | None) -> set[str]:
        """Checks that the ledger lists for any of these runs, and that a row, if any, may fail with its kinds of findings."""
        entries = self._covering(run, ids)
        return {check for entry in entries for check in (entry.check if row is None else entry.excused(row))}

    def expectation(self, run: Run, row: Row, host: Host) -> Expectation:
        """The row of a run compared with the ledger.

        Of the entries whose conditions reach it, those that name the profile have to be right about a run that others cover
        by its features.
        """
        named = self.coverage.of(run.id)
        if not PROFILES[run.profile].by_features:
            return judge(row, named, host)
        own = own_entries(row, named)
        if not row.failed:
            return judge(row, own, host, [one for one in self.covering(run, row.failed) if one.undefined])
        alike = [entry for entry in named if entry not in own and entry.excused(row) & row.failed]
        alike += self.covering(run, row.failed, row)
        explained = self.known(run, row).union(*(entry.excused(row) for entry in alike))
        return judge(row, own, host, alike, explained)

    def covering(self, run: Run, failed: frozenset[str], row: Row | None = None) -> list[Entry]:
        """The entries for runs like this one that list a failed check, or else one of which the failures are consequences.

        With a `row`, an entry counts for kinds of findings that the row has.
        """
        similar = self._covering(run, similar_ids(run))
        if undefined := [one for one in similar if one.undefined]:
            return undefined
        return [one for one in similar if (one.check if row is None else one.excused(row)) & failed] or [
            entry for entry in similar if entry.check & {"matched", "observed", "stable"}
        ]

    def known(self, run: Run, row: Row) -> set[str]:
        """Checks whose failure the ledger explains: those listed for runs like this one, and their consequences."""
        assert run.variant is not None
        similar = similar_ids(run)
        further = similar_ids(run, CHANNELS_LAST).keys() - similar.keys()
        explained = Explained(
            row,
            frozenset(spec.layout for spec in run.variant.operands.values()),
            frozenset(self._listed(run, similar, None)),
            frozenset(self._listed(run, further, row)),
            self._listed(run, similar, row),
        )
        for consequence in CONSEQUENCES:
            if consequence.holds(explained):
                explained.known |= {*consequence.follow}
        return explained.known


@dataclass
class Explained:
    """What the ledger says of a row by runs like its run, of which consequences follow.

    `layouts` are the memory formats of its operands, `listed` the checks of entries for such runs, with findings of whatever
    kind, `in_channels_last` the checks of entries for runs like it in channels-last format, and `known` the checks whose
    failure is explained so far.
    """

    row: Row
    layouts: frozenset[str]
    listed: frozenset[str]
    in_channels_last: frozenset[str]
    known: set[str]

    def raises_earlier(self) -> bool:
        """Whether the row raises in a stage before lowering, and a check of such a stage is listed."""
        raised = {finding.stage for finding in self.row.findings if isinstance(finding, Raises)}
        return any(check in self.listed for stage, check in EARLIER.items() if stage in raised)

    @property
    def in_use(self) -> bool:
        """Whether the run is of a layer in use."""
        return PROFILES[self.row.profile].variants == "in use"

    def in_float(self) -> bool:
        """Whether it is explained that the layer is left in float."""
        return "annotated" in self.known and not IN_FLOAT.isdisjoint(one.kind for one in self.row.findings)


@dataclass(frozen=True)
class Consequence:
    """Checks that fail too where something `holds`, and why they `follow`."""

    holds: Callable[[Explained], bool]
    follow: tuple[str, ...]
    because: str


CONSEQUENCES = (
    Consequence(
        # of layers in use the fixed variants in this format say so, and `stable` may be about a state_dict
        lambda one: "stable" in one.known and "channels_last" in one.layouts and not one.in_use,
        ("numerics", "lowered"),
        "the memory format changes the output, or the kernel raises for it",
    ),
    Consequence(
        lambda one: not one.in_channels_last.isdisjoint({"numerics", "stable"}),
        ("stable",),
        "the check executes the model in channels-last format too",
    ),
    Consequence(
        lambda one: "numerics" in one.known and ("strided" in one.layouts or "numerics" in one.row.failed),
        ("stable",),
        "a kernel that is wrong in one memory format need not be in another, and has other ties",
    ),
    Consequence(Explained.raises_earlier, ("lowered",), "the check reports what those of earlier stages do elsewhere"),
    Consequence(Explained.in_float, ("observed",), "what is not annotated has no observer"),
    Consequence(
        lambda one: one.in_float() and _other_qparams_alone(one.row),
        ("numerics",),
        "the result of a layer in float is quantized as the operator behind it says",
    ),
    Consequence(
        lambda one: "asked" in one.row.failed,
        ("numerics",),
        "a quantized kernel has the grid of its input, or a fixed one",
    ),
    Consequence(
        lambda one: "observed" in one.row.failed & one.known,
        ("reference",),
        "the reference model does not quantize an input that is not observed",
    ),
)
"""What follows from an explained failure, in the order in which it follows."""


def _other_qparams_alone(row: Row) -> bool:
    """Whether all that is wrong with the result of a row is its scale and zero point."""
    return all(one.kind == OutputQparams.kind for one in row.findings if one.check == "numerics")
