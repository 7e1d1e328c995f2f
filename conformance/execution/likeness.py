"""What the ledger says about runs that it does not name: entries for fixed runs cover those that are like them."""

from collections.abc import Iterable

from conformance.cases.features import similar_ids
from conformance.cases.runs import Run
from conformance.results.ledger import Entry, Expectation, Host, entries_by_run, judge
from conformance.results.profiles import PROFILES
from conformance.results.rows import Row

CHANNELS_LAST = frozenset({"channels_last"})


class Likeness:
    """The entries of a ledger that cover runs by their features; `entries` are those for this host."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = tuple(entries)
        self._entries_by_run: dict[str, list[Entry]] = {}

    def _covering(self, ids: set[str]) -> list[Entry]:
        """The entries for any of these runs."""
        new = ids - self._entries_by_run.keys()
        by_run = entries_by_run(self.entries, new)
        self._entries_by_run |= {run_id: by_run.get(run_id, []) for run_id in new}
        found = {id(entry): entry for run_id in sorted(ids) for entry in self._entries_by_run[run_id]}
        return [*found.values()]

    def _listed(self, ids: set[str]) -> set[str]:
        """Checks that the ledger lists for any of these runs."""
        return {check for entry in self._covering(ids) for check in entry.check}

    def expectation(self, run: Run, row: Row, named: Iterable[Entry], host: Host) -> Expectation:
        """The row of a run compared with the ledger; `named` are the entries whose globs match its id.

        Those of them that name the profile have to be right about a run that others cover by its features.
        """
        if not PROFILES[run.profile].by_features:
            return judge(row, named, host)
        own = [entry for entry in named if any(f"/{run.profile}@" in glob for glob in entry.match)]
        if not row.failed:
            return judge(row, own, host)
        alike = [entry for entry in named if entry not in own and entry.check & row.failed]
        alike += self.covering(run, row.failed)
        explained = self.known(run, row.failed).union(*(entry.check for entry in alike))
        return judge(row, own, host, alike, explained)

    def covering(self, run: Run, failed: frozenset[str]) -> list[Entry]:
        """The entries for runs like this one that list a failed check, or else one of which the failures are consequences."""
        similar = self._covering(similar_ids(run))
        return [entry for entry in similar if entry.check & failed] or [
            entry for entry in similar if entry.check & {"stable", "observed"}
        ]

    def known(self, run: Run, failed: frozenset[str]) -> set[str]:
        """Checks whose failure the ledger explains: those listed for runs like this one, and their consequences."""
        assert run.variant is not None
        similar = similar_ids(run)
        known = self._listed(similar)
        layouts = {spec.layout for spec in run.variant.operands.values()}
        if "stable" in known and "channels_last" in layouts:
            known |= {"numerics", "lowered"}  # the format changes the output, or the kernel raises
        # `stable` executes the run in channels-last format too
        in_channels_last = similar_ids(run, CHANNELS_LAST)
        if {"numerics", "stable"} & self._listed(in_channels_last - similar):
            known.add("stable")
        if "numerics" in known and ("strided" in layouts or "numerics" in failed):
            known.add("stable")  # a kernel that is wrong in one format need not be in another, and has other ties
        if "observed" in failed & known:
            known.add("reference")  # the reference model does not quantize an input that is not observed
        return known
