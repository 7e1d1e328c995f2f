"""New deviations written into a ledger: conditions that hold for these runs and no others, and the lines of a finding."""

import json
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.errors import UsageError

from .jsonl import replacing
from .ledger_file import MOST_ALTERNATIVES, load, own
from .rows import Row
from .where import ANY, FIELDS, Where, array, has_to_be_named, values_of

OF_IDS = ("backend", "engine", "pattern", "config", "flow", "variant", "profile")
"""The fields that are parts of ids."""
WHOLE = ("backend", "engine", "pattern")
"""The fields that name a whole pattern on an engine."""
WIDENED = ("flow", "profile", "config", "variant")
"""Fields that a condition leaves open, in the order that they are tried."""
JOINED = ("variant", "pattern", "config", "flow", "profile", "engine")
"""Fields of which a condition may list several values, in the order that they are tried."""
FINDING, SHOWS, END = "[[finding]]", "shows = [", "]"
WIDTH = 126


@dataclass(frozen=True)
class Place:
    """Where a finding shows: the conditions on runs, those on exceptions, and the checks that the runs fail."""

    where: tuple[Where, ...]
    must: tuple[str, ...]
    exclude: tuple[Where, ...] = ()

    def lines(self) -> list[str]:
        """The lines of its inline table, behind which others may follow."""
        tables = {"where": [*map(str, self.where)], "except": [*map(str, self.exclude)]}
        return place_lines({**{name: of for name, of in tables.items() if of}, "must": array(self.must)})


def place_lines(fields: Mapping[str, str | list[str]]) -> list[str]:
    """The lines of a place from its fields: TOML values, or the tables of a list of tables, each on a line of its own if the
    place does not fit on one."""
    alone = {name: of[0] if isinstance(of, list) and len(of) == 1 else of for name, of in fields.items()}
    values = {name: of if isinstance(of, str) else f"[{', '.join(of)}]" for name, of in alone.items()}
    line = ", ".join(f"{name} = {value}" for name, value in values.items())
    whole = broken(f"    {{ {line} }},", " " * 8)
    listed = {name: of for name, of in alone.items() if isinstance(of, list)}
    if max(map(len, whole)) <= WIDTH and (len(whole) == 1 or not listed):
        return whole
    listed = listed or {name: of for name, of in fields.items() if isinstance(of, list)}
    texts = [f"{name} = {value}" for name, value in values.items() if name not in listed]
    lines = [f"    {{ {', '.join((*texts, ''))}"] if texts else ["    { "]
    for name, tables in listed.items():
        lines[-1] += f"{name} = ["
        lines += [part for table in tables for part in broken(f"        {table},", " " * 12)]
        lines.append("    ], ")
    return [*lines[:-1], "    ] },"]


def broken(line: str, indent: str) -> list[str]:
    """A place as lines of at most WIDTH characters, if possible: an inline table can be broken inside of its arrays alone."""
    inside, quoted, points = "", False, []
    for index, character in enumerate(line):
        if character == '"' and line[index - 1] != "\\":
            quoted = not quoted
        elif not quoted and character in "[{":
            inside += character
        elif not quoted and character in "]}":
            inside = inside[:-1]
        if not quoted and inside.endswith("[") and character in "[,":
            points.append(index + 1)
    lines, start, lead = [], 0, ""
    while len(lead) + len(line) - start > WIDTH:
        behind = [point for point in points if point > start]
        if not behind:
            break
        end = max((point for point in behind if len(lead) + point - start <= WIDTH), default=behind[0])
        lines.append(lead + line[start:end])
        start, lead = end + line[end:].startswith(" "), indent
    return [*lines, lead + line[start:]]


def places(accepted: Collection[Row], rows: Iterable[Row]) -> list[Place]:
    """The places of the accepted rows: one for each set of failed checks. Their conditions hold for no other of the rows that
    were executed."""
    executed = [row for row in rows if row.verdict.executed]
    by_checks: dict[frozenset[str], set[str]] = {}
    for row in accepted:
        by_checks.setdefault(row.failed, set()).add(row.id)
    return [
        place
        for checks, ids in sorted(by_checks.items(), key=lambda item: sorted(item[0]))
        for place in _places(sorted(ids), [row.id for row in executed if row.id not in ids], tuple(sorted(checks)))
    ]


def _places(ids: Sequence[str], others: Sequence[str], checks: tuple[str, ...]) -> list[Place]:
    """The places of runs and none of the others: by conditions, or as whole patterns but for exceptions if that is
    shorter."""
    wheres = conditions(ids, others)
    whole = _together([*dict.fromkeys(Where.of(_values(one, WHOLE)) for one in ids)], ())
    exclude = conditions(sorted({other for where in whole for other in _reached(where, others)}), ids)
    shorter = len(whole) + len(exclude) < len(wheres) and len(exclude) <= MOST_ALTERNATIVES
    if shorter and all(any(where.matches(run_id) for where in whole) for run_id in ids):
        return [Place(tuple(whole), checks, tuple(exclude))]
    starts = range(0, len(wheres), MOST_ALTERNATIVES)
    return [Place(tuple(wheres[start : start + MOST_ALTERNATIVES]), checks) for start in starts]


def causes(accepted: Iterable[Row]) -> list[list[Row]]:
    """The rows by what is wrong with them, the checks that fail and the kinds of their findings; the most rows first."""
    found: dict[frozenset[tuple[str, str]], list[Row]] = {}
    for row in accepted:
        kinds = {(finding.check, finding.kind) for finding in row.findings} or {(check, "") for check in row.failed}
        found.setdefault(frozenset(kinds), []).append(row)
    return sorted(found.values(), key=len, reverse=True)


def described(rows: Sequence[Row]) -> dict[str, str]:
    """What a ledger says of a finding that has no words yet: `title` and `reason`, from the plainest of its rows."""
    patterns = dict.fromkeys(row.pattern for row in rows)
    plainest = min(rows, key=lambda row: len(row.detail))
    check, _, said = plainest.detail.partition(": ")
    said = said.partition(": ")[0]
    where = f"{plainest.pattern} on {plainest.engine}"
    more = f" and {len(patterns) - 1} more patterns" if len(patterns) > 1 else ""
    runs = f"{len(rows)} runs" if len(rows) > 1 else "one run"
    return {
        "title": f"{where}{more}: {said}",
        "reason": f"In {runs} of {where}{more} the check {check} fails: {said.rstrip('.')}.",
    }


def conditions(ids: Sequence[str], others: Collection[str]) -> list[Where]:
    """Conditions that together hold for every id and none of the others. Backend and engine are always named, and the pattern
    unless several have the same runs."""
    covered: set[str] = set()
    found: list[Where] = []
    for run_id in ids:
        if run_id not in covered:
            where = _widened(run_id, others)
            covered |= _reached(where, ids)
            found.append(where)
    return _together(found, others)


def _together(wheres: list[Where], others: Collection[str]) -> list[Where]:
    """The conditions, those that differ in one field as one that has the alternatives. The pattern is left open where several
    have the same runs and none of the others is reached then."""
    for field in JOINED:
        by_rest: dict[Where, list[Where]] = {}
        for where in wheres:
            by_rest.setdefault(_opened(where, field), []).append(where)
        wheres = [one for rest, some in by_rest.items() for one in _joined(rest, field, some, others)]
    return wheres


def _joined(rest: Where, field: str, some: list[Where], others: Collection[str]) -> list[Where]:
    """Conditions that differ in one field, without which they are `rest`, as few as possible."""
    if len(some) == 1:
        return some
    values = {value for one in some for value in one[field]}
    if values >= {*ANY}:
        values = {*ANY, *(value for value in values if has_to_be_named(field, value))}
    if values == {*ANY} or (field == "pattern" and not any(map(rest.matches, others))):
        return [rest]
    ordered = sorted(values)
    chunks = [ordered[start : start + MOST_ALTERNATIVES] for start in range(0, len(ordered), MOST_ALTERNATIVES)]
    return [Where.of({**dict(rest.alternatives), field: chunk}) for chunk in chunks]


def _reached(where: Where, ids: Iterable[str]) -> set[str]:
    """The ids that a condition reaches."""
    return {*filter(where.matches, ids)}


def _widened(run_id: str, others: Collection[str]) -> Where:
    """The run with as many of its fields left open as possible."""
    values = _values(run_id, OF_IDS)
    where = Where.of(values)
    for field in WIDENED:
        opened = _opened(where, field)
        if not has_to_be_named(field, values[field]) and not any(map(opened.matches, others)):
            where = opened
    return where


def _values(run_id: str, fields: Collection[str]) -> dict[str, str]:
    """The values of a run for some of the fields."""
    return {field: value for field, value in zip(FIELDS, values_of(run_id), strict=True) if field in fields}


def _opened(where: Where, field: str) -> Where:
    """The condition without one of its fields."""
    return Where.of({name: globs for name, globs in where.alternatives if name != field})


def add(folder: Path, name: str, values: dict[str, str], shown: Sequence[Place]) -> Path:
    """Write places of a finding into a ledger and return the file: behind those that the finding has, or as a new finding.

    Args:
        folder: the ledger. It is created if it does not exist.
        name: the file of a new finding, without `.toml`: that of the backend.
        values: `id`, and for a new finding `title`, `reason` and `upstream`.
        shown: the places.

    Raises UsageError if the file cannot be read, or would no longer be a ledger. It is then as it was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    entries = own(folder)
    sources = {entry.id: entry.source for entry in entries}
    file, _, number = sources.get(values["id"], f"{name}.toml#").partition(",")[0].partition("#")
    path = folder / file
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    places = [line for place in shown for line in place.lines()]
    if number:
        starts = [index for index, line in enumerate(lines) if line.strip() == FINDING]
        inside = range(starts[int(number) - 1], len(lines)) if int(number) <= len(starts) else range(0)
        end = next((index for index in inside if lines[index] == END), len(lines))
        lines[end:end] = places
    else:
        lines += ["", FINDING] if lines else [FINDING]
        lines += [
            *(f"{field} = {json.dumps(value, ensure_ascii=False)}" for field, value in values.items()),
            SHOWS,
            *places,
            END,
        ]
    text = "\n".join(lines) + "\n"
    with TemporaryDirectory() as copied:
        shutil.copytree(
            folder,
            copied,
            ignore=lambda _, names: [one for one in names if not one.endswith(".toml")],
            dirs_exist_ok=True,
        )
        (Path(copied) / file).write_text(text, encoding="utf-8")
        load(Path(copied))
        if len(own(Path(copied))) != len(entries) + len(shown):
            raise UsageError(f"{path}: not written in the form of a ledger: add the finding by hand:\n{text}")
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")
    return path
