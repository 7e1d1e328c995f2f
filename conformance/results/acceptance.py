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
    """Where a finding shows: the globs of runs, and the checks that these fail."""

    match: tuple[str, ...]
    check: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """The lines of its table."""
        yield "    [[finding.shows]]"
        yield f"    match = {_array(self.match)}"
        yield f"    check = {_array(self.check)}"


def places(accepted: Collection[Row], rows: Iterable[Row]) -> list[Place]:
    """The places of the accepted rows: one for each set of failed checks. Their globs match no other of the rows that were
    executed."""
    executed = [row for row in rows if row.verdict.executed]
    by_checks: dict[frozenset[str], set[str]] = {}
    for row in accepted:
        by_checks.setdefault(row.failed, set()).add(row.id)
    return [
        Place(tuple(globs(sorted(ids), [row.id for row in executed if row.id not in ids])), tuple(sorted(checks)))
        for checks, ids in sorted(by_checks.items(), key=lambda item: sorted(item[0]))
    ]


def globs(ids: Sequence[str], others: Collection[str]) -> Iterator[str]:
    """Yield globs that together match every id and none of the others. Backend, pattern and engine are always named."""
    covered: set[str] = set()
    for run_id in ids:
        if run_id not in covered:
            glob = _widened(run_id, others)
            covered |= {one for one in ids if glob_of(glob).reaches(one)}
            yield glob


def _widened(run_id: str, others: Collection[str]) -> str:
    """The id with as many of its parts left open as possible."""
    parts = run_id.split("/", SLASHES)
    for place in WIDENED:
        part = parts[place]
        parts[place] = f"*@{part.rpartition('@')[2]}" if place == SLASHES else "*"
        if any(glob_of("/".join(parts)).reaches(other) for other in others):
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
