"""The ledger of known deviations (known/*.toml), and rows compared with it."""

import fnmatch
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.paths import KNOWN

from .causes import RELATIONS, LayerCause
from .findings import KINDS
from .findings.stages import INPUTS
from .profiles import CHECKS, PROFILES, profile_names
from .rows import Row

FIELDS = {
    "id": str,
    "match": (str, list),
    "except": (str, list),
    "check": (str, list),
    "finding": (str, list),
    "unless": (str, list),
    "when": dict,
    "layer": list,
    "reason": str,
    "upstream": str,
}
REQUIRED = ("id", "check", "reason", "upstream")
CONDITIONS = ("torch", "arch", "isa")
LAYER_REQUIRED = ("engine", "check")
VERSION = re.compile(r"(>=|<=|==|<|>)\s*[\d.]+|[\w.*?+\[\]]+")


@dataclass(frozen=True)
class Host:
    """Properties of a host that conditions of entries refer to."""

    torch: str
    arch: str
    isa: str


@dataclass(frozen=True)
class Entry:
    """One known deviation.

    `match` are globs over run ids, `exclude` (`except` in the file) globs over ids that are exceptions. All checks in `check`
    that a run has fail in every run that matches, with findings of no other kind than `finding` if it states any. Runs with a
    feature of `unless` are not covered because of others like them. `when` are
    conditions on the host, `reason` says what the engine does instead, `upstream` names the issue, or is `unreported`.
    `source` is the entry's place in the ledger. `layers` are the layers of networks that show the deviation, maybe alone.
    """

    id: str
    match: tuple[str, ...]
    check: frozenset[str]
    reason: str
    upstream: str
    when: Mapping[str, str]
    source: str
    exclude: tuple[str, ...] = ()
    layers: tuple[LayerCause, ...] = ()
    finding: tuple[str, ...] = ()
    unless: frozenset[str] = frozenset()

    def excused(self, row: Row) -> frozenset[str]:
        """The checks that a row may fail: without those that have a finding of another kind than the entry states."""
        stated = {*self.finding, *(of.kind for of in INPUTS)}
        return self.check - {one.check for one in row.findings if self.finding and one.kind not in stated}

    def matches(self, run_id: str) -> bool:
        """Whether the entry covers a run: the run has one of the checks, and a glob matches it. A wildcard does not match the
        profile of a property, which a glob has to name."""
        return (
            not self.check.isdisjoint(_checks(run_id))
            and any(_glob(text).reaches(run_id) for text in self.match)
            and not any(_glob(text).matches(run_id) for text in self.exclude)
        )

    def applies(self, host: Host) -> bool:
        """Whether this host fulfils the entry's conditions."""
        return all(
            _version_in(getattr(host, name), condition)
            if name == "torch"
            else fnmatch.fnmatchcase(getattr(host, name), condition)
            for name, condition in self.when.items()
        )


@dataclass(frozen=True)
class Glob:
    """A glob, compiled when it is first needed. `plain` is its longest part without wildcards, searched first because every
    run is matched with every glob; `properties` says for each property whether the glob names its profile."""

    text: str
    plain: str
    properties: tuple[bool, ...]

    @cached_property
    def whole(self) -> Callable[[str], object]:
        return re.compile(fnmatch.translate(self.text)).match

    def matches(self, run_id: str) -> bool:
        return self.plain in run_id and self.whole(run_id) is not None

    def reaches(self, run_id: str) -> bool:
        """Whether it matches a run as an item of `match`: a property only if the glob names its profile."""
        return self.matches(run_id) and self.properties == _properties(run_id)

    def reached(self, ids: Iterable[str]) -> list[str]:
        plain = self.plain
        return [run_id for run_id in ids if plain in run_id and self.reaches(run_id)]


@cache
def _glob(text: str) -> Glob:
    plain = "" if "[" in text else max(re.split(r"[*?]", text), key=len)
    return Glob(text, plain, _properties(text))


def _checks(run_id: str) -> frozenset[str]:
    """The checks that the profile of a run has, and that it does not crash."""
    return _checks_of_profile(run_id.rpartition("@")[0].rpartition("/")[2])


@cache
def _checks_of_profile(name: str) -> frozenset[str]:
    return frozenset({"crashes", *(PROFILES[name].checks if name in PROFILES else CHECKS)})


def _properties(text: str) -> tuple[bool, ...]:
    """For each property whether a glob or an id names its profile."""
    return tuple(f"/{profile}@" in text for profile in profile_names("property"))


def _version_in(version: str, condition: str) -> bool:
    """Whether a torch version fulfils all parts of a condition like `>=2.10,<2.14`; a part without an operator is a glob."""
    numbers = _numbers(version)
    for part in condition.split(","):
        relation = re.match(r"\s*(>=|<=|==|<|>)\s*([\d.]+)\s*$", part)
        if relation is None:
            if not fnmatch.fnmatchcase(version, part.strip()):
                return False
            continue
        bound = _numbers(relation[2])
        if not RELATIONS[relation[1]](numbers[: len(bound)], bound):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))


def load(folder: Path = KNOWN) -> tuple[Entry, ...]:
    """Read every `*.toml` of a folder. Raises UsageError naming the file, the entry and the wrong field."""
    if not folder.is_dir():
        raise UsageError(f"ledger {folder}: no such folder")
    entries: list[Entry] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: not readable as TOML: {error}") from error
        if set(document) - {"deviation"}:
            raise UsageError(
                f"{path}: unknown table {sorted(set(document) - {'deviation'})[0]!r}: entries are [[deviation]]"
            )
        listed = document.get("deviation", [])
        if not isinstance(listed, list) or not all(isinstance(values, dict) for values in listed):
            raise UsageError(f"{path}: deviation is not a list of tables: entries begin with [[deviation]]")
        entries += [_entry(f"{path.name}#{number}", values) for number, values in enumerate(listed, 1)]
    sources: dict[str, str] = {}
    for entry in entries:
        if entry.id in sources:
            raise UsageError(f"{entry.source}: id {entry.id!r} is taken by {sources[entry.id]}")
        sources[entry.id] = entry.source
    return tuple(entries)


def _entry(source: str, values: Mapping[str, Any]) -> Entry:
    for name, value in values.items():
        if name not in FIELDS:
            raise UsageError(f"{source}: unknown field {name!r}: fields are {', '.join(FIELDS)}")
        if not isinstance(value, FIELDS[name]):  # type: ignore[arg-type]
            raise UsageError(f"{source}: {name} is a {type(value).__name__}")
    for name in ("match", "except", "check", "finding", "unless"):
        if not all(isinstance(part, str) for part in values.get(name, [])):
            raise UsageError(f"{source}: {name} holds something that is no string")
    for name in REQUIRED:
        if not values.get(name):
            raise UsageError(f"{source}: {name} is missing")
    if not values.get("match") and not values.get("layer"):
        raise UsageError(f"{source}: match is missing: write globs over run ids, or a [[deviation.layer]]")
    match, exclude, check, finding = (_list(values.get(name, [])) for name in ("match", "except", "check", "finding"))
    _require_checks(source, check)
    if unknown := sorted({*finding} - KINDS.keys()):
        raise UsageError(f"{source}: unknown kind of finding {unknown[0]!r}: kinds are {', '.join(KINDS)}")
    when = values.get("when", {})
    for name, condition in when.items():
        if name not in CONDITIONS:
            raise UsageError(f"{source}: unknown condition {name!r}: conditions are {', '.join(CONDITIONS)}")
        if not isinstance(condition, str):
            raise UsageError(f"{source}: when.{name} is a {type(condition).__name__}, not a string")
        if name == "torch" and not all(VERSION.fullmatch(part.strip()) for part in condition.split(",")):
            raise UsageError(
                f"{source}: when.torch {condition!r}: write bounds such as '>=2.10,<2.14', or a glob such as '2.13.*'"
            )
    if values["upstream"] != "unreported" and not re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", values["upstream"]):
        raise UsageError(f"{source}: upstream {values['upstream']!r}: write owner/repo#number, or unreported")
    return Entry(
        id=values["id"],
        match=tuple(match),
        check=frozenset(check),
        reason=values["reason"],
        upstream=values["upstream"],
        when=dict(when),
        source=source,
        exclude=tuple(exclude),
        finding=tuple(finding),
        unless=frozenset(_list(values.get("unless", []))),
        layers=tuple(_layer(f"{source}, layer {number}", one) for number, one in enumerate(values.get("layer", []), 1)),
    )


def _require_checks(source: str, names: Iterable[str]) -> None:
    """Raise UsageError for a name that no check has."""
    for name in names:
        if name not in (*CHECKS, "crashes"):
            raise UsageError(f"{source}: unknown check {name!r}: checks are {', '.join(CHECKS)}, crashes")


def _layer(source: str, values: Any) -> LayerCause:
    if not isinstance(values, dict):
        raise UsageError(f"{source}: is a {type(values).__name__}: layers begin with [[deviation.layer]]")
    for name in LAYER_REQUIRED:
        if not values.get(name):
            raise UsageError(f"{source}: {name} is missing")
    conditions: dict[str, tuple[str, ...]] = {}
    for name, value in values.items():
        parts = _list(value) if isinstance(value, str | list) else []
        if not parts or not all(isinstance(part, str) for part in parts):
            raise UsageError(f"{source}: {name} is neither a string nor a list of strings")
        conditions[name] = tuple(parts)
    check = conditions.pop("check")
    _require_checks(source, check)
    return LayerCause(conditions.pop("engine"), check, conditions)


def explaining(
    entries: Iterable[Entry], host: Host, engine: str, check: str, features: Mapping[str, str]
) -> Entry | None:
    """The first entry that explains why a layer with these features fails a check on an engine, None if there is none."""
    for entry in entries:
        if entry.applies(host) and any(cause.explains(engine, check, features) for cause in entry.layers):
            return entry
    return None


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


@dataclass(frozen=True)
class Expectation:
    """A row compared with the ledger: `expected` is true if it deviates as its entries say, or conforms and has none."""

    expected: bool
    entries: tuple[Entry, ...]
    message: str = ""

    @property
    def known(self) -> str | None:
        return self.entries[0].id if self.entries else None


def judge(
    row: Row, entries: Iterable[Entry], host: Host, alike: Iterable[Entry] = (), explained: Collection[str] = ()
) -> Expectation:
    """Compare a row with the entries that cover it. Neither an unlisted deviation nor a missing listed one is expected.

    A row of a network names the entry that explains it, found by the features of the layer, which a row does not have. The
    entries `alike` cover runs like that of the row, and `explained` are the checks that it may therefore fail.
    """
    if row.profile in profile_names("network"):
        explaining_entries = tuple(entry for entry in entries if entry.id == row.known)
        expected = not row.failed or bool(explaining_entries)
        return Expectation(expected, explaining_entries, "" if expected else f"{row.detail} (not in the ledger)")
    covering = tuple(entry for entry in entries if entry.applies(host) and entry.matches(row.id))
    if not row.verdict.executed:
        return Expectation(True, ())
    listed = frozenset(name for entry in covering for name in entry.check) & _checks(row.id)
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


def own_entries(row: Row, entries: Iterable[Entry]) -> list[Entry]:
    """Of the entries whose globs match a row that is covered by its features, those that name its profile: they have to be
    right about it."""
    return [entry for entry in entries if any(f"/{row.profile}@" in glob for glob in entry.match)]


def judge_recorded(row: Row, named: Iterable[Entry], ledger: Mapping[str, Entry], host: Host) -> Expectation:
    """Compare a row of a file with the entries whose globs match it, `named`, of a ledger by id.

    Features of a run are not in its row. Where they decide what covers it, the row names the entry that its invocation found,
    and none if it did not expect the outcome.
    """
    if row.profile not in PROFILES or not PROFILES[row.profile].by_features:
        return judge(row, named, host)
    found = [ledger[row.known]] if row.known is not None and row.known in ledger else []
    own = own_entries(row, named)
    return judge(row, own, host, [entry for entry in found if entry not in own], row.failed if found else ())


def entries_by_run(entries: Iterable[Entry], ids: Iterable[str]) -> dict[str, list[Entry]]:
    """The entries that cover each run, by run id. Faster than `Entry.matches` for many runs."""
    ids, by_run = list(ids), defaultdict(list)
    for entry in entries:
        for run_id in dict.fromkeys(run_id for glob in entry.match for run_id in _glob(glob).reached(ids)):
            if entry.matches(run_id):
                by_run[run_id].append(entry)
    return dict(by_run)


def useless(entries: Iterable[Entry], ids: Iterable[str], host: Host) -> dict[str, str]:
    """Useless parts of the entries that apply to this host, described by entry id.

    These are globs that match none of the run ids, exceptions that exclude none, and entries whose every deviation is listed
    by others on all hosts where the entry applies.
    """
    # entries about layers of networks only are not about runs
    ids, applying = list(ids), [entry for entry in entries if entry.match and entry.applies(host)]
    reached = {text: _glob(text).reached(ids) for entry in applying for text in entry.match}
    matched = {
        entry.id: [run_id for run_id in dict.fromkeys(_reached_by_entry(reached, entry)) if entry.matches(run_id)]
        for entry in applying
    }
    entries_of_run = defaultdict(list)
    for entry in applying:
        for run_id in matched[entry.id]:
            entries_of_run[run_id].append(entry)
    faults = {entry.id: _useless(entry, reached, set(matched[entry.id]), entries_of_run) for entry in applying}
    return {name: fault for name, fault in faults.items() if fault}


def _reached_by_entry(reached: Mapping[str, list[str]], entry: Entry) -> list[str]:
    return [run_id for glob in entry.match for run_id in reached[glob]]


def _useless(
    entry: Entry, reached: Mapping[str, list[str]], matched: set[str], entries_of_run: Mapping[str, list[Entry]]
) -> str:
    if idle := [glob for glob in entry.match if matched.isdisjoint(reached[glob])]:
        return f"matches no run: {', '.join(idle)}"
    if idle := [glob for glob in entry.exclude if not any(map(_glob(glob).matches, _reached_by_entry(reached, entry)))]:
        return f"excepts no run: {', '.join(idle)}"
    other_entries = {run_id: _more_general(entry, entries_of_run[run_id]) for run_id in matched}
    if all(entry.check <= frozenset().union(*(other.check for other in others)) for others in other_entries.values()):
        names = dict.fromkeys(other.id for others in other_entries.values() for other in others)
        return f"says nothing that {', '.join(names)} does not say"
    return ""


def _more_general(entry: Entry, entries: Iterable[Entry]) -> list[Entry]:
    """The other entries, of those that cover a run, that apply on every host where this one does."""
    return [other for other in entries if other is not entry and other.when.items() <= entry.when.items()]


def backends_of(entry: Entry) -> frozenset[str]:
    """Names of backends, or wildcards, that an entry's globs begin with."""
    return frozenset(glob.partition("/")[0] for glob in entry.match)
