"""The ledger of known deviations (known/*.toml) against rows."""

import fnmatch
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import UsageError
from .rows import CHECKS, Row

KNOWN = Path(__file__).parent / "known"
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
        return any(fnmatch.fnmatchcase(run_id, glob) for glob in self.match) and not any(
            fnmatch.fnmatchcase(run_id, glob) for glob in self.exclude
        )

    def applies(self, host: Host) -> bool:
        """Whether this host is one that the entry speaks of."""
        return all(
            _version_in(getattr(host, name), condition)
            if name == "torch"
            else fnmatch.fnmatchcase(getattr(host, name), condition)
            for name, condition in self.when.items()
        )


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
class Verdict:
    """How a row stands with the ledger: `expected` is true where it is what the ledger says, or it conforms unlisted."""

    expected: bool
    entries: tuple[Entry, ...]
    message: str = ""

    @property
    def known(self) -> str | None:
        return self.entries[0].id if self.entries else None


def judge(row: Row, entries: Iterable[Entry], host: Host) -> Verdict:
    """Hold one row against the entries that speak of it: an unlisted deviation, or a listed one that is gone, is wrong."""
    about = tuple(entry for entry in entries if entry.applies(host) and entry.matches(row.id))
    if row.verdict == "unavailable":
        return Verdict(True, ())
    listed = frozenset(name for entry in about for name in entry.check)
    if row.failed == listed:
        return Verdict(True, about)
    unlisted, gone = sorted(row.failed - listed), sorted(listed - row.failed)
    parts = []
    if unlisted:
        parts.append(f"{row.detail} (not in the ledger: {', '.join(unlisted)})")
    if gone:
        sources = ", ".join(f"{entry.id} ({entry.source})" for entry in about if entry.check & set(gone))
        parts.append(f"no longer deviates in {', '.join(gone)}: remove it from {sources}")
    return Verdict(False, about, "; ".join(parts))


def unmatched(entries: Iterable[Entry], ids: Iterable[str], host: Host) -> list[Entry]:
    """Entries that speak of this host and match none of the run ids."""
    ids = list(ids)
    return [entry for entry in entries if entry.applies(host) and not any(entry.matches(run_id) for run_id in ids)]


def backends_of(entry: Entry) -> frozenset[str]:
    """The backends that an entry's globs name; a glob that begins with a wildcard names every backend."""
    return frozenset(glob.partition("/")[0] for glob in entry.match)
