"""Rows compared with the ledger of known findings."""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from conformance.configs.engines import ENGINES

from .findings import detail_of
from .known import Coverage, Entry, Host, checks_of
from .profiles import OF_SOME_RUNS, PROFILES, profile_names
from .rows import Row
from .verdicts import Verdict
from .where import Where, values_of

ENGINES_OF_BACKENDS = frozenset(engine for engines in ENGINES.values() for engine in engines)


def explaining(
    entries: Iterable[Entry], host: Host, engine: str, check: str, features: Mapping[str, str]
) -> Entry | None:
    """The entry that explains why a layer with these features fails a check on an engine, None if there is none: of several
    the one that says most of the layer, and of these the first."""
    found = (
        (len(cause.features), entry)
        for entry in entries
        if entry.applies(host)
        for cause in entry.layers
        if cause.explains(engine, check, features)
    )
    return max(found, key=itemgetter(0), default=(0, None))[1]


@dataclass(frozen=True)
class Expectation:
    """A row compared with the ledger: `expected` is true if it deviates as its entries say, or conforms and has none.
    `undefined` is the reason why any outcome of the run is possible, if the ledger says so."""

    expected: bool
    entries: tuple[Entry, ...]
    message: str = ""
    undefined: str = ""

    @property
    def known(self) -> str | None:
        return self.entries[0].id if self.entries else None


def judge(
    row: Row, entries: Iterable[Entry], host: Host, alike: Collection[Entry] = (), explained: Collection[str] = ()
) -> Expectation:
    """Compare a row with the entries that cover it. Neither an unlisted deviation nor a missing listed one is expected.

    A row of a network names the entry that explains it, found by the features of the layer, which a row does not have. The
    entries `alike` cover runs like that of the row, and `explained` are the checks that it may therefore fail.
    """
    if row.profile in profile_names("network"):
        explaining_entries = tuple(entry for entry in entries if entry.named(row.known))
        expected = not row.failed or bool(explaining_entries)
        return Expectation(expected, explaining_entries, "" if expected else f"{row.detail} (not in the ledger)")
    if row.verdict is Verdict.UNJUDGED:
        return Expectation(False, (), row.detail)
    due = checks_of(row.id) - {name for name in OF_SOME_RUNS if row.checks.get(name, "skip") == "skip"}  # not demanded
    covering = tuple(
        entry for entry in entries if entry.applies(host) and entry.matches(row.id) and not due.isdisjoint(entry.check)
    )
    if not row.verdict.executed:
        return Expectation(True, ())
    if undefined := tuple(entry for entry in (*covering, *alike) if entry.undefined):
        return _judge_undefined(row, undefined, host)
    demanding = [entry for entry in covering if demands(entry, row, host)]
    covering = tuple(entry for entry in covering if entry in demanding or entry.excused(row) & row.failed)
    listed = frozenset(name for entry in demanding for name in entry.must) & due
    excused = frozenset(name for entry in covering for name in entry.excused(row))
    unlisted, gone = sorted(row.failed - excused - {*explained}), sorted(listed - row.failed)
    covering = (*covering, *alike)
    if not unlisted and not gone:
        return Expectation(True, covering)
    parts = []
    if unlisted:
        # what is known is not read before what is new
        new_first = detail_of(sorted(row.findings, key=lambda one: one.check not in unlisted)) or row.detail
        parts.append(f"{new_first} (not in the ledger: {', '.join(unlisted)})")
    skipped = [name for name in gone if row.checks.get(name) == "skip"]
    if passed := [name for name in gone if name not in skipped]:
        parts.append(f"no longer deviates in {', '.join(passed)}: remove it from {_demanding(covering, passed)}")
    if skipped:
        names = ", ".join(skipped)
        parts.append(
            f"does not reach {names}, which {_demanding(covering, skipped)} demands: list the checks that fail"
        )
    return Expectation(False, covering, "; ".join(parts))


def _demanding(entries: Iterable[Entry], checks: Collection[str]) -> str:
    """The entries that list any of these checks, with their places in files."""
    return ", ".join(f"{entry.id} ({entry.source})" for entry in entries if not entry.check.isdisjoint(checks))


def _judge_undefined(row: Row, entries: tuple[Entry, ...], host: Host) -> Expectation:
    """Compare a row whose outcome entries call undefined: it may have any, but its check of memory must not pass."""
    stated = [entry for entry in entries if entry.undefined == "out-of-bounds" and entry.matches(row.id)]
    refuted = [entry for entry in stated if host.among(entry.platforms)]
    if refuted and row.checks.get("memory") == "pass":
        sources = ", ".join(f"{entry.id} ({entry.source})" for entry in refuted)
        return Expectation(False, entries, f"no kernel accesses memory out of bounds: remove the run from {sources}")
    return Expectation(True, entries, undefined=entries[0].undefined)


def demands(entry: Entry, row: Row, host: Host) -> bool:
    """Whether a row that an entry covers has to deviate. None has to on a platform that the ledger was not written on.

    A condition is about the backends and engines of the tables: it explains rows of third parties as well, but does not know
    which of them deviate. Of an engine of theirs on a config of the tables those deviate whose engine it names, and of a
    config of theirs those whose backend or engine it names.
    """
    if not entry.must or not host.among(entry.platforms):
        return False
    if row.backend in ENGINES and row.engine in ENGINES_OF_BACKENDS:
        return True
    named = ("engine",) if row.backend in ENGINES else ("backend", "engine")
    return any(where.names(field, getattr(row, field)) for where in entry.where for field in named)


def own_entries(row: Row, entries: Iterable[Entry]) -> list[Entry]:
    """Of the entries whose conditions reach a row that is covered by its features, those that name its profile: they have to
    be right about it."""
    return [entry for entry in entries if any(where.names("profile", row.profile) for where in entry.where)]


def judge_recorded(row: Row, named: Iterable[Entry], ledger: Mapping[str, Sequence[Entry]], host: Host) -> Expectation:
    """Compare a row of a file with the entries whose conditions reach it, `named`. `ledger` has all entries by id.

    Features of a run are not in its row. Where they decide what covers it, the row names the entry that its invocation found,
    and none if it did not expect the outcome.
    """
    if row.profile not in PROFILES or not PROFILES[row.profile].by_features:
        return judge(row, named, host)
    found = ledger.get(row.known or "", ())
    own = own_entries(row, named)
    return judge(row, own, host, [entry for entry in found if entry not in own], row.failed if found else ())


def useless(
    entries: Iterable[Entry],
    ids: Iterable[str],
    host: Host,
    nameable: Callable[[], Iterable[str]] = tuple,
    asked: Container[str] | None = None,
    absent: Container[str] = (),
) -> dict[str, str]:
    """Useless parts of the entries that apply to this host, described by the entry's name; of those named in `asked` only,
    if it is given. Nothing is said of conditions that name a backend of which no id is given, which `absent` has.

    These are conditions, and alternatives of them, that hold for none of the run ids, exceptions that exclude none, and
    entries whose every deviation is listed by others on all hosts where the entry applies. A condition may hold for
    `nameable` ids alone, to which drawn runs are compared.
    """
    # entries about layers of networks only are not about runs
    applying = [entry for entry in entries if entry.where and entry.applies(host)]
    described = {number: entry for number, entry in enumerate(applying) if asked is None or entry.name in asked}
    parts: defaultdict[Where, list[int]] = defaultdict(list)
    for number, entry in described.items():
        for part in dict.fromkeys(_parts(entry.where, absent)):
            parts[part].append(number)
    survey = _Survey(applying, parts)
    for run_id in ids:
        survey.add(run_id)
    survey.settle(nameable)
    entries_of_run = defaultdict(list)
    for number, entry in enumerate(applying):
        for run_id in survey.matched[number]:
            entries_of_run[run_id].append(entry)
    faults = {}
    for number, entry in described.items():
        if wheres := [where for where, left in survey.pending.items() if number in left]:
            faults[entry.name] = f"matches no run: {', '.join(map(str, wheres))}"
        elif wheres := _excepting_none(entry, survey.reached[number], absent):
            faults[entry.name] = f"excepts no run: {', '.join(map(str, wheres))}"
        elif not all(_about_present(where, absent) for where in entry.where):
            continue  # it says more of the absent backends
        elif others := _saying_the_same(entry, {run_id: entries_of_run[run_id] for run_id in survey.matched[number]}):
            faults[entry.name] = f"says nothing that {', '.join(others)} does not say"
    return faults


def _about_present(where: Where, absent: Container[str]) -> bool:
    """Whether a condition names no absent backend."""
    return not any(backend in absent for backend in where["backend"])


def _parts(wheres: Iterable[Where], absent: Container[str]) -> list[Where]:
    """The conditions and each alternative of them, without those that name an absent backend."""
    return [part for where in wheres for part in (*where.parts(), where) if _about_present(part, absent)]


def _excepting_none(entry: Entry, reached: Iterable[str], absent: Container[str]) -> list[Where]:
    """The exceptions of an entry, and alternatives of them, that exclude none of the runs which its conditions reach."""
    values = [*map(values_of, reached)]
    return [part for part in _parts(entry.exclude, absent) if not any(map(part.holds, values))]


class _Survey:
    """Runs compared with entries, which are named by their numbers.

    `matched` are the runs that each entry covers, `reached` those that its conditions reach if it has exceptions. `pending`
    are conditions, with the entries that cover no run by them so far.
    """

    def __init__(self, entries: Iterable[Entry], pending: Mapping[Where, Sequence[int]]) -> None:
        self.matched: defaultdict[int, list[str]] = defaultdict(list)
        self.reached: defaultdict[int, list[str]] = defaultdict(list)
        self.pending = {where: [*left] for where, left in pending.items()}
        self._coverage = Coverage(entries, pending)
        self._left = self._coverage.conditions.set_of(pending, reaching=True)

    def add(self, run_id: str) -> None:
        """Compare a run with the entries, and with the conditions that are pending."""
        found, checks = self._coverage.conditions.of(run_id), checks_of(run_id)
        for number in self._coverage.reached(found):
            if self._coverage.entries[number].exclude:
                self.reached[number].append(run_id)
            if self._coverage.admits(number, found, checks):
                self.matched[number].append(run_id)
        self._settle(found, checks)

    def settle(self, ids: Callable[[], Iterable[str]]) -> None:
        """Compare runs with the conditions that are pending, as long as there are any."""
        for run_id in ids() if self.pending else ():
            self._settle(self._coverage.conditions.of(run_id), checks_of(run_id))
            if not self.pending:
                break

    def _settle(self, found: int, checks: frozenset[str]) -> None:
        conditions = self._coverage.conditions
        for where in [conditions.reaching[place] for place in conditions.places(found & self._left)]:
            left = [number for number in self.pending.pop(where) if not self._coverage.admits(number, found, checks)]
            if left:
                self.pending[where] = left
            else:
                self._left &= ~conditions.set_of([where], reaching=True)


def _saying_the_same(entry: Entry, entries_of_run: Mapping[str, list[Entry]]) -> list[str]:
    """The names of other entries which list, for each run that an entry covers, every check that it lists; none if it lists
    one that they do not, or covers no run."""
    others = {run_id: _more_general(entry, entries) for run_id, entries in entries_of_run.items()}
    if not all(entry.check <= frozenset().union(*(one.check for one in found)) for found in others.values()):
        return []
    return [*dict.fromkeys(other.name for found in others.values() for other in found)]


def _more_general(entry: Entry, entries: Iterable[Entry]) -> list[Entry]:
    """The other entries, of those that cover a run, that apply on every host where this one does."""
    return [other for other in entries if other is not entry and other.when.items() <= entry.when.items()]


def backends_of(entry: Entry) -> frozenset[str]:
    """Names of backends, or wildcards, that an entry's conditions have."""
    return frozenset(backend for where in entry.where for backend in where["backend"])
