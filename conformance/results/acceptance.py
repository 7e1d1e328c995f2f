"""New deviations written into a ledger: globs that match these runs and no others, and the tables of a finding."""

import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.errors import UsageError

from .globs import SLASHES, glob_of
from .jsonl import replacing
from .ledger_file import load, own
from .rows import Row

WIDENED = (3, 5, 2, 4)
"""Parts of a run id that a glob leaves open, in the order that they are tried: flow, profile, dtype config, variant."""
FINDING = "[[finding]]"


@dataclass(frozen=True)
class Place:
    """Where a finding shows: the globs of runs, those of exceptions, and the checks that the runs fail."""

    match: tuple[str, ...]
    check: tuple[str, ...]
    exclude: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """The lines of its table."""
        yield "    [[finding.shows]]"
        yield f"    match = {_array(self.match)}"
        if self.exclude:
            yield f"    except = {_array(self.exclude)}"
        yield f"    check = {_array(self.check)}"


def places(accepted: Collection[Row], rows: Iterable[Row]) -> list[Place]:
    """The places of the accepted rows: one for each set of failed checks. Their globs match no other of the rows that were
    executed."""
    executed = [row for row in rows if row.verdict.executed]
    by_checks: dict[frozenset[str], set[str]] = {}
    for row in accepted:
        by_checks.setdefault(row.failed, set()).add(row.id)
    return [
        _place(sorted(ids), [row.id for row in executed if row.id not in ids], tuple(sorted(checks)))
        for checks, ids in sorted(by_checks.items(), key=lambda item: sorted(item[0]))
    ]


def _place(ids: Sequence[str], others: Sequence[str], checks: tuple[str, ...]) -> Place:
    """The place of runs and none of the others: by globs, or as whole patterns without exceptions if that is shorter."""
    match = globs(ids, others)
    parts = ((*one.split("/", 2)[:2], one.rpartition("@")[2]) for one in ids)
    whole = [*dict.fromkeys(f"{backend}/{pattern}/*/*/*/*@{engine}" for backend, pattern, engine in parts)]
    among = sorted({other for glob in whole for other in _reached(glob, others)})
    exclude = globs(among, ids)
    if len(whole) + len(exclude) < len(match):
        return Place(tuple(whole), checks, tuple(exclude))
    return Place(tuple(match), checks)


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


def globs(ids: Sequence[str], others: Collection[str]) -> list[str]:
    """Globs that together match every id and none of the others. Backend and engine are always named, and the pattern unless
    several have the same runs."""
    covered: set[str] = set()
    found: list[str] = []
    for run_id in ids:
        if run_id not in covered:
            glob = _widened(run_id, others)
            covered |= _reached(glob, ids)
            found.append(glob)
    return [*_without_patterns(found, ids, others)]


def _without_patterns(found: Sequence[str], ids: Sequence[str], others: Collection[str]) -> Iterator[str]:
    """The globs, with the pattern left open where that reaches runs of several patterns and none of the others."""
    left = {*ids}
    for glob in found:
        backend, _, form = glob.split("/", 2)
        opened = f"{backend}/*/{form}"
        reached = _reached(opened, ids)
        several = len({one.split("/")[1] for one in reached}) > 1
        if not several or _reached(opened, others):
            opened, reached = glob, _reached(glob, ids)
        if reached & left:
            left -= reached
            yield opened


def _reached(glob: str, ids: Iterable[str]) -> set[str]:
    """The ids that a glob matches."""
    return {*filter(glob_of(glob).reaches, ids)}


def _widened(run_id: str, others: Collection[str]) -> str:
    """The id with as many of its parts left open as possible."""
    parts = run_id.split("/", SLASHES)
    for place in WIDENED:
        part = parts[place]
        parts[place] = f"*@{part.rpartition('@')[2]}" if place == SLASHES else "*"
        if _reached("/".join(parts), others):
            parts[place] = part
    return "/".join(parts)


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
    file, _, table = sources.get(values["id"], f"{name}.toml#").partition(",")[0].partition("#")
    path = folder / file
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    tables = [line for place in shown for line in ("", *place.lines())]
    if table:
        starts = [index for index, line in enumerate(lines) if line.strip() == FINDING]
        ends = [*starts[1:], len(lines)]
        end = ends[int(table) - 1]
        while not lines[end - 1].strip():
            end -= 1
        lines[end:end] = tables
    else:
        lines += ["", FINDING] if lines else [FINDING]
        lines += [*(f"{field} = {_text(value)}" for field, value in values.items()), *tables]
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


def _array(values: Sequence[str]) -> str:
    if len(values) == 1:
        return _text(values[0])
    return "[\n" + "".join(f"        {_text(value)},\n" for value in values) + "    ]"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
