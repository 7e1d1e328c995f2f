"""The files of a ledger: `*.toml`, with a table for each finding and one for each place where it shows."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.paths import KNOWN

from .causes import LayerCause
from .findings import KINDS
from .findings.stages import FURTHER, UNDEFINED
from .known import CONDITIONS, VERSIONS, Entry, KnownFinding
from .profiles import CHECKS
from .remedies import REMEDIES
from .severity import Component
from .verdicts import Verdict
from .where import FIELDS, Where

OF_A_FINDING = {
    "id": str,
    "title": str,
    "reason": str,
    "upstream": str,
    "component": str,
    "formerly": (str, list),
    "remedies": (str, list),
    "why": str,
    "source": str,
    "no_report": str,
    "shows": list,
}
OF_A_PLACE = {
    "where": (dict, list),
    "except": (dict, list),
    "must": (str, list),
    "may": (str, list),
    "kind": (str, list),
    "unless": (str, list),
    "undefined": str,
    "when": dict,
    "layers": list,
    "predicts": list,
}
REQUIRED = ("id", "title", "reason", "shows")
OF_A_REPORT = ("why", "source", "no_report")
UNREPORTED = "unreported"
"""The value of `upstream`, if there is none, of what nobody has written down."""
LAYER_REQUIRED = ("engine", "check")
MOST_ALTERNATIVES = 12
"""The most conditions of a place, and the most values that a condition lists for a field: a cause has few."""
SUITE = "suite"
"""The value of `extends`, which adds the suite's own entries to a ledger."""
VERSION = re.compile(r"(>=|<=|==|<|>)\s*[\d.]+|[\w.*?+\[\]]+")


def load(folder: Path = KNOWN) -> tuple[Entry, ...]:
    """Read the entries of every finding in `*.toml` of a folder, behind the suite's own if a file has `extends = "suite"`.

    Raises UsageError naming the file, the finding and the wrong field.
    """
    sources: dict[str, str] = {}
    before = _read(KNOWN, sources) if extends(folder) and folder.resolve() != KNOWN.resolve() else []
    return (*before, *_read(folder, sources))


def own(folder: Path) -> tuple[Entry, ...]:
    """The entries of a ledger without those of the suite that it extends. Raises UsageError as `load` does."""
    return tuple(_read(folder, {}))


def extends(folder: Path) -> bool:
    """Whether a ledger extends that of the suite."""
    return any("extends" in _document(path) for path in _files(folder))


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UsageError(f"ledger {folder}: no such folder")
    return sorted(folder.glob("*.toml"))


def _read(folder: Path, sources: dict[str, str]) -> list[Entry]:
    """The entries of the files of a folder. `sources` has where the ids are that are taken, and gets those that they take."""
    entries: list[Entry] = []
    documents = {path: _document(path) for path in _files(folder)}
    platforms = tuple(sorted({glob for document in documents.values() for glob in document.get("platforms", [])}))
    for path, document in documents.items():
        for number, values in enumerate(document.get("finding", []), 1):
            source = f"{path.name}#{number}"
            of_finding = list(_entries(source, values))
            for name in (of_finding[0].id, *of_finding[0].finding.formerly):
                if name in sources:
                    raise UsageError(f"{source}: id {name!r} is taken by {sources[name]}")
                sources[name] = source
            entries += [replace(entry, platforms=platforms) for entry in of_finding]
    return entries


def _document(path: Path) -> dict[str, Any]:
    """A file as it is written, with a list of tables of findings, if any."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not readable as TOML: {error}") from error
    if unknown := sorted(document.keys() - {"finding", "extends", "platforms"}):
        raise UsageError(f"{path}: unknown table {unknown[0]!r}: write [[finding]] with shows")
    if document.get("extends", SUITE) != SUITE:
        raise UsageError(f'{path}: extends {document["extends"]!r}: write extends = "{SUITE}" above the findings')
    platforms = document.get("platforms", [])
    if not isinstance(platforms, list) or not all(isinstance(glob, str) and glob.count(" ") == 1 for glob in platforms):
        raise UsageError(
            f'{path}: platforms {platforms!r}: write a list of "ARCHITECTURE INSTRUCTIONS", as "x86_64 avx2"'
        )
    listed = document.get("finding", [])
    if not isinstance(listed, list) or not all(isinstance(values, dict) for values in listed):
        raise UsageError(f"{path}: finding is not a list of tables: findings begin with [[finding]]")
    return document


def _entries(source: str, values: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the entries of a finding."""
    _require_fields(source, values, OF_A_FINDING)
    for name in REQUIRED:
        if not values.get(name):
            raise UsageError(f"{source}: {name} is missing")
    upstream, component = values.get("upstream", UNREPORTED), values.get("component")
    if upstream != UNREPORTED and not re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", upstream):
        raise UsageError(f"{source}: upstream {upstream!r}: write owner/repo#number, or leave it out")
    if component is not None and component not in [*Component]:
        raise UsageError(f"{source}: unknown component {component!r}: components are {', '.join(Component)}")
    formerly = tuple(_list(values.get("formerly", [])))
    remedies = tuple(_list(values.get("remedies", [])))
    if unknown := sorted({*remedies} - {*REMEDIES}):
        raise UsageError(f"{source}: unknown remedy {unknown[0]!r}: remedies are {', '.join(REMEDIES)}")
    about = {name: values.get(name, "") for name in OF_A_REPORT}
    finding = KnownFinding(
        values["id"], values["title"], values["reason"], upstream, component, formerly, remedies, **about
    )
    for number, place in enumerate(values["shows"], 1):
        where = f"{source}, shows {number}"
        if not isinstance(place, dict):
            raise UsageError(f"{where}: is a {type(place).__name__}: write {{ where = {{ ... }}, must = CHECK }}")
        yield _entry(where, finding, number, place)


def _require_fields(source: str, values: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Raise UsageError for a field that is unknown or has a value of another type."""
    for name, value in values.items():
        if name not in fields:
            raise UsageError(f"{source}: unknown field {name!r}: fields are {', '.join(fields)}")
        if not isinstance(value, fields[name]):
            raise UsageError(f"{source}: {name} is a {type(value).__name__}")
        texts = value if isinstance(value, list) and str in _types(fields[name]) else ()
        if not all(isinstance(part, str) for part in texts):
            raise UsageError(f"{source}: {name} holds something that is no string")


def _types(of: Any) -> tuple[type, ...]:
    return of if isinstance(of, tuple) else (of,)


def _entry(source: str, finding: KnownFinding, number: int, values: Mapping[str, Any]) -> Entry:
    _require_fields(source, values, OF_A_PLACE)
    must, may, undefined = _checks(source, values)
    if not any(map(values.get, ("where", "layers", "predicts"))):
        raise UsageError(f"{source}: where is missing: write conditions on runs, or layers")
    kind = _list(values.get("kind", []))
    if unknown := sorted({*kind} - KINDS.keys()):
        raise UsageError(f"{source}: unknown kind of finding {unknown[0]!r}: kinds are {', '.join(KINDS)}")
    if (further := FURTHER.intersection(kind)) and must:
        raise UsageError(f"{source}: must beside {', '.join(sorted(further))}, which differ between runs: write may")
    when = values.get("when", {})
    _require_conditions(source, when)
    return Entry(
        finding,
        where=_wheres(source, "where", values.get("where", [])),
        must=must,
        source=source,
        number=number,
        when=dict(when),
        exclude=_wheres(source, "except", values.get("except", [])),
        layers=_layers(f"{source}, layer", values.get("layers", [])),
        predicts=tuple(
            replace(one, foretells=True) for one in _layers(f"{source}, predicts", values.get("predicts", []))
        ),
        kind=tuple(kind),
        unless=frozenset(_list(values.get("unless", []))),
        undefined=undefined,
        may=may,
    )


def _checks(source: str, values: Mapping[str, Any]) -> tuple[frozenset[str], frozenset[str], str]:
    """The checks that must fail and that may, and why the outcome is undefined, if it is."""
    undefined = values.get("undefined", "")
    if undefined and undefined not in UNDEFINED:
        raise UsageError(f"{source}: unknown reason {undefined!r} for undefined: reasons are {', '.join(UNDEFINED)}")
    if undefined and (wrong := [name for name in ("must", "may", "kind") if values.get(name)]):
        raise UsageError(
            f"{source}: {wrong[0]} beside undefined: a run whose outcome is undefined may fail in any check, or in none"
        )
    if undefined:
        return frozenset(), frozenset({str(Verdict.UNDEFINED)}), undefined
    must, may = frozenset(_list(values.get("must", []))), frozenset(_list(values.get("may", [])))
    _require_checks(source, must | may)
    if values.get("where") and not must and not may:
        raise UsageError(f"{source}: must is missing: write the checks that fail, or under may those that can")
    if both := sorted(must & may):
        raise UsageError(f"{source}: {both[0]} is both in must and in may")
    return must, may, ""


def _wheres(source: str, name: str, values: Mapping[str, Any] | list[Any]) -> tuple[Where, ...]:
    """Conditions on runs, of which one has to hold."""
    tables = [values] if isinstance(values, Mapping) else values
    if len(tables) > MOST_ALTERNATIVES:
        raise UsageError(
            f"{source}: {name} has {len(tables)} conditions, more than {MOST_ALTERNATIVES}: say what the runs share"
        )
    for table in tables:
        if not isinstance(table, Mapping) or not table:
            raise UsageError(f"{source}: {name} holds {table!r}: write {{ FIELD = VALUE }}")
        if unknown := [field for field in table if field not in FIELDS]:
            raise UsageError(f"{source}: {name} has no field {unknown[0]!r}: fields are {', '.join(FIELDS)}")
        for field, globs in table.items():
            texts = _list(globs) if isinstance(globs, str | list) else []
            if not texts or not all(isinstance(text, str) for text in texts):
                raise UsageError(f"{source}: {name}.{field} is neither a string nor a list of strings")
            if len(texts) > MOST_ALTERNATIVES:
                raise UsageError(
                    f"{source}: {name}.{field} has {len(texts)} alternatives, more than {MOST_ALTERNATIVES}: say by another "
                    "field what these runs have in common"
                )
    return tuple(map(Where.of, tables))


def _require_conditions(source: str, when: Mapping[str, Any]) -> None:
    for name, condition in when.items():
        if name not in CONDITIONS:
            raise UsageError(f"{source}: unknown condition {name!r}: conditions are {', '.join(CONDITIONS)}")
        if not isinstance(condition, str):
            raise UsageError(f"{source}: when.{name} is a {type(condition).__name__}, not a string")
        if name in VERSIONS and not all(VERSION.fullmatch(part.strip()) for part in condition.split(",")):
            raise UsageError(
                f"{source}: when.{name} {condition!r}: write bounds such as '>=2.10,<2.14', or a glob such as '2.13.*'"
            )


def _require_checks(source: str, names: Iterable[str]) -> None:
    """Raise UsageError for a name that no check has."""
    for name in names:
        if name not in (*CHECKS, Verdict.CRASHES):
            raise UsageError(f"{source}: unknown check {name!r}: checks are {', '.join(CHECKS)}, crashes")


def _layers(source: str, values: Iterable[Any]) -> tuple[LayerCause, ...]:
    return tuple(_layer(f"{source} {place}", one) for place, one in enumerate(values, 1))


def _layer(source: str, values: Any) -> LayerCause:
    if not isinstance(values, dict):
        raise UsageError(
            f"{source}: is a {type(values).__name__}: write {{ engine = ENGINE, check = CHECK, FEATURE = VALUE }}"
        )
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


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
