"""The ledger of known deviations (known/*.toml) against rows."""

import fnmatch
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.paths import KNOWN

from .profiles import CHECKS, profile_names
from .rows import Row

FIELDS = {
    "id": str,
    "match": (str, list),
    "except": (str, list),
    "check": (str, list),
    "when": dict,
    "reason": str,
    "upstream": str,
}
REQUIRED = ("id", "match", "check", "reason", "upstream")
CONDITIONS = ("torch", "arch", "isa")
VERSION = re.compile(r"(>=|<=|==|<|>)\s*[\d.]+|[\w.*?+\[\]]+")


@dataclass(frozen=True)
class Host:
    """What an entry's `when` is held against."""

    torch: str
    arch: str
    isa: str


@dataclass(frozen=True)
class Entry:
    """One known deviation.

    `match` are globs over run ids and `exclude` (`except` in the file) globs over those that it does not speak of, `check`
    the checks that fail, all of them, `when` the hosts it is known on, `reason` what the engine does instead, `upstream`
    where it is reported, or `unreported`.
    """

    id: str
    match: tuple[str, ...]
    check: frozenset[str]
    reason: str
    upstream: str
    when: Mapping[str, str]
    source: str
    exclude: tuple[str, ...] = ()

    def matches(self, run_id: str) -> bool:
        """Whether the entry speaks of a run. Wildcards stay within the cases: a glob has to name a property's profile."""
        return any(_glob(text).reaches(run_id) for text in self.match) and not any(
            _glob(text).matches(run_id) for text in self.exclude
        )

    def applies(self, host: Host) -> bool:
        """Whether this host is one that the entry speaks of."""
        return all(
            _version_in(getattr(host, name), condition)
            if name == "torch"
            else fnmatch.fnmatchcase(getattr(host, name), condition)
            for name, condition in self.when.items()
        )


@dataclass(frozen=True)
class Glob:
    """A compiled glob. Every run is held against every glob, so that its longest plain part is looked for first."""

    plain: str
    whole: Callable[[str], object]
    properties: tuple[bool, ...]

    def matches(self, run_id: str) -> bool:
        return self.plain in run_id and self.whole(run_id) is not None

    def reaches(self, run_id: str) -> bool:
        """Whether it speaks of a run when it stands in `match`."""
        return self.matches(run_id) and self.properties == _properties(run_id)

    def reached(self, ids: Iterable[str]) -> list[str]:
        plain = self.plain
        return [run_id for run_id in ids if plain in run_id and self.reaches(run_id)]


@cache
def _glob(text: str) -> Glob:
    plain = "" if "[" in text else max(re.split(r"[*?]", text), key=len)
    return Glob(plain, re.compile(fnmatch.translate(text)).match, _properties(text))


def _properties(text: str) -> tuple[bool, ...]:
    """For each property whether a glob or an id names its profile."""
    return tuple(f"/{profile}@" in text for profile in profile_names("property"))


def _version_in(version: str, condition: str) -> bool:
    """Whether a torch version fulfils all of `>=2.10,<2.14`; a condition without an operator is a glob."""
    numbers = _numbers(version)
    for part in condition.split(","):
        relation = re.match(r"\s*(>=|<=|==|<|>)\s*([\d.]+)\s*$", part)
        if relation is None:
            if not fnmatch.fnmatchcase(version, part.strip()):
                return False
            continue
        bound = _numbers(relation[2])
        mine = numbers[: len(bound)]
        if not {">=": mine >= bound, "<=": mine <= bound, "==": mine == bound, "<": mine < bound, ">": mine > bound}[
            relation[1]
        ]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))


def load(folder: Path = KNOWN) -> tuple[Entry, ...]:
    """Read every `*.toml` of a folder. Raises UsageError naming the file, entry and field that is wrong."""
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
    seen: dict[str, str] = {}
    for entry in entries:
        if entry.id in seen:
            raise UsageError(f"{entry.source}: id {entry.id!r} is taken by {seen[entry.id]}")
        seen[entry.id] = entry.source
    return tuple(entries)


def _entry(source: str, values: Mapping[str, Any]) -> Entry:
    for name, value in values.items():
        if name not in FIELDS:
            raise UsageError(f"{source}: unknown field {name!r}: fields are {', '.join(FIELDS)}")
        if not isinstance(value, FIELDS[name]):  # type: ignore[arg-type]
            raise UsageError(f"{source}: {name} is a {type(value).__name__}")
    for name in ("match", "except", "check"):
        if not all(isinstance(part, str) for part in values.get(name, [])):
            raise UsageError(f"{source}: {name} holds something that is no string")
    for name in REQUIRED:
        if not values.get(name):
            raise UsageError(f"{source}: {name} is missing")
    match, exclude, check = (_list(values.get(name, [])) for name in ("match", "except", "check"))
    for name in check:
        if name not in (*CHECKS, "crashes"):
            raise UsageError(f"{source}: unknown check {name!r}: checks are {', '.join(CHECKS)}, crashes")
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
    )


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


def judge(row: Row, entries: Iterable[Entry], host: Host) -> Expectation:
    """Hold one row against the entries that speak of it: an unlisted deviation, or a listed one that is gone, is wrong."""
    about = tuple(entry for entry in entries if entry.applies(host) and entry.matches(row.id))
    if not row.verdict.executed:
        return Expectation(True, ())
    listed = frozenset(name for entry in about for name in entry.check)
    if row.failed == listed:
        return Expectation(True, about)
    unlisted, gone = sorted(row.failed - listed), sorted(listed - row.failed)
    parts = []
    if unlisted:
        parts.append(f"{row.detail} (not in the ledger: {', '.join(unlisted)})")
    if gone:
        sources = ", ".join(f"{entry.id} ({entry.source})" for entry in about if entry.check & set(gone))
        parts.append(f"no longer deviates in {', '.join(gone)}: remove it from {sources}")
    return Expectation(False, about, "; ".join(parts))


def speaking(entries: Iterable[Entry], ids: Iterable[str]) -> dict[str, list[Entry]]:
    """The entries that speak of each run, by its id; of many runs at once this is faster than to ask one by one."""
    ids, found = list(ids), defaultdict(list)
    for entry in entries:
        for one in dict.fromkeys(run_id for glob in entry.match for run_id in _glob(glob).reached(ids)):
            if entry.matches(one):
                found[one].append(entry)
    return dict(found)


def useless(entries: Iterable[Entry], ids: Iterable[str], host: Host) -> dict[str, str]:
    """What entries that speak of this host say in vain, by their ids: a glob that matches none of the run ids, an exception
    that excepts none, or every deviation that the entry lists if others list it too, on all hosts where it does."""
    ids, mine = list(ids), [entry for entry in entries if entry.applies(host)]
    reached = {text: _glob(text).reached(ids) for entry in mine for text in entry.match}
    matched = {entry.id: [one for one in dict.fromkeys(_all(reached, entry)) if entry.matches(one)] for entry in mine}
    about = defaultdict(list)
    for entry in mine:
        for one in matched[entry.id]:
            about[one].append(entry)
    found = {entry.id: _useless(entry, reached, set(matched[entry.id]), about) for entry in mine}
    return {name: wrong for name, wrong in found.items() if wrong}


def _all(reached: Mapping[str, list[str]], entry: Entry) -> list[str]:
    return [one for glob in entry.match for one in reached[glob]]


def _useless(
    entry: Entry, reached: Mapping[str, list[str]], matched: set[str], about: Mapping[str, list[Entry]]
) -> str:
    if idle := [glob for glob in entry.match if matched.isdisjoint(reached[glob])]:
        return f"matches no run: {', '.join(idle)}"
    if idle := [glob for glob in entry.exclude if not any(map(_glob(glob).matches, _all(reached, entry)))]:
        return f"excepts no run: {', '.join(idle)}"
    others = {one: _others(entry, about[one]) for one in matched}
    if all(entry.check <= frozenset().union(*(other.check for other in more)) for more in others.values()):
        names = dict.fromkeys(other.id for more in others.values() for other in more)
        return f"says nothing that {', '.join(names)} does not say"
    return ""


def _others(entry: Entry, about: Iterable[Entry]) -> list[Entry]:
    """Of the entries about a run those but one that speak of it on every host where that does."""
    return [other for other in about if other is not entry and other.when.items() <= entry.when.items()]


def backends_of(entry: Entry) -> frozenset[str]:
    """The backends that an entry's globs name; a glob that begins with a wildcard names every backend."""
    return frozenset(glob.partition("/")[0] for glob in entry.match)
