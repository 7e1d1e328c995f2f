"""Rows compared with the ledger of known findings."""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from conformance.configs.engines import ENGINES

from .globs import Globs, glob_of
from .known import Entry, Host, checks_of
from .profiles import OF_SOME_RUNS, PROFILES, profile_names
from .rows import Row
from .verdicts import Verdict

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
    covering = tuple(entry for entry in covering if entry in demanding or entry.check & row.failed)
    listed = frozenset(name for entry in demanding for name in entry.check) & due
    excused = frozenset(name for entry in covering for name in entry.excused(row))
    unlisted, gone = sorted(row.failed - excused - {*explained}), sorted(listed - row.failed)
    covering = (*covering, *alike)
    if not unlisted and not gone:
        return Expectation(True, covering)
    parts = []
    if unlisted:
        parts.append(f"{row.detail} (not in the ledger: {', '.join(unlisted)})")
    if gone:
        sources = ", ".join(f"{entry.id} ({entry.source})" for entry in covering if entry.check & set(gone))
        parts.append(f"no longer deviates in {', '.join(gone)}: remove it from {sources}")
    return Expectation(False, covering, "; ".join(parts))


def _judge_undefined(row: Row, entries: tuple[Entry, ...], host: Host) -> Expectation:
    """Compare a row whose outcome entries call undefined: it may have any, but its check of memory must not pass."""
    stated = [entry for entry in entries if entry.undefined == "out-of-bounds" and entry.matches(row.id)]
    refuted = [entry for entry in stated if host.among(entry.platforms)]
    if refuted and row.checks.get("memory") == "pass":
        sources = ", ".join(f"{entry.id} ({entry.source})" for entry in refuted)
        return Expectation(False, entries, f"no kernel accesses memory out of bounds: remove the run from {sources}")
    return Expectation(True, entries, undefined=entries[0].undefined)


def demands(entry: Entry, row: Row, host: Host) -> bool:
    """Whether a row that an entry covers has to deviate. None has to with inputs of further shapes, which runs do not share,
    nor on a platform that the ledger was not written on.

    A glob with wildcards for backend and engine is about those of the tables: it explains rows of third parties as well, but
    does not know which of them deviate.
    """
    if entry.on_further_inputs or not host.among(entry.platforms):
        return False
    if row.backend in ENGINES and row.engine in ENGINES_OF_BACKENDS:
        return True
    return any(row.backend in glob.partition("/")[0] or row.engine in glob.rpartition("@")[2] for glob in entry.match)


def own_entries(row: Row, entries: Iterable[Entry]) -> list[Entry]:
    """Of the entries whose globs match a row that is covered by its features, those that name its profile: they have to be
    right about it."""
    return [entry for entry in entries if any(f"/{row.profile}@" in glob for glob in entry.match)]


def judge_recorded(row: Row, named: Iterable[Entry], ledger: Mapping[str, Sequence[Entry]], host: Host) -> Expectation:
    """Compare a row of a file with the entries whose globs match it, `named`. `ledger` has all entries by id.

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
    if it is given. Nothing is said of globs that begin with a backend of which no id is given, which `absent` names.

    These are globs that match none of the run ids, exceptions that exclude none, and entries whose every deviation is listed
    by others on all hosts where the entry applies. A glob may match `nameable` ids alone, to which drawn runs are compared.
    """
    # entries about layers of networks only are not about runs
    applying = [entry for entry in entries if entry.match and entry.applies(host)]
    reached = _reached(applying, ids)
    matched = {
        entry.name: [run_id for run_id in _reached_by_entry(reached, entry) if entry.admits(run_id)]
        for entry in applying
    }
    entries_of_run = defaultdict(list)
    for entry in applying:
        for run_id in matched[entry.name]:
            entries_of_run[run_id].append(entry)
    described = [entry for entry in applying if asked is None or entry.name in asked]
    idle = {entry.name: _idle(entry, _not_about(absent, entry.match), reached) for entry in described}
    if any(idle.values()):
        further = _reached([entry for entry in described if idle[entry.name]], nameable())
        idle = {entry.name: _idle(entry, idle[entry.name], further) for entry in described}
    faults = {}
    for entry in described:
        if globs := idle[entry.name]:
            faults[entry.name] = f"matches no run: {', '.join(globs)}"
        elif globs := _not_about(absent, _excepting_none(entry, _reached_by_entry(reached, entry))):
            faults[entry.name] = f"excepts no run: {', '.join(globs)}"
        elif len(_not_about(absent, entry.match)) < len(entry.match):
            continue  # it says more of the absent backends
        elif others := _saying_the_same(entry, {run_id: entries_of_run[run_id] for run_id in matched[entry.name]}):
            faults[entry.name] = f"says nothing that {', '.join(others)} does not say"
    return faults


def _not_about(backends: Container[str], globs: Iterable[str]) -> list[str]:
    """The globs that do not begin with the name of one of the backends."""
    return [glob for glob in globs if glob.partition("/")[0] not in backends]


def _reached(entries: Iterable[Entry], ids: Iterable[str]) -> dict[str, list[str]]:
    """The ids that each glob of the entries matches."""
    globs = Globs(text for entry in entries for text in entry.match)
    reached = defaultdict[str, list[str]](list)
    for run_id in ids:
        for text in globs.texts(globs.reaching(run_id, globs.matching(run_id))):
            reached[text].append(run_id)
    return reached


def _reached_by_entry(reached: Mapping[str, list[str]], entry: Entry) -> list[str]:
    """The ids that the globs of an entry match, exceptions and those without its checks among them."""
    return [*dict.fromkeys(run_id for glob in entry.match for run_id in reached[glob])]


def _idle(entry: Entry, globs: Iterable[str], reached: Mapping[str, list[str]]) -> list[str]:
    """Those of an entry's globs by which it covers nothing."""
    return [glob for glob in globs if not any(map(entry.admits, reached[glob]))]


def _excepting_none(entry: Entry, reached_by_entry: Sequence[str]) -> list[str]:
    """The exceptions of an entry that exclude none of the ids that its globs match."""
    return [glob for glob in entry.exclude if not any(map(glob_of(glob).matches, reached_by_entry))]


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
    """Names of backends, or wildcards, that an entry's globs begin with."""
    return frozenset(glob.partition("/")[0] for glob in entry.match)
