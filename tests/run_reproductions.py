"""Run the reproductions of rows files and compare the checks that they fail with those of their rows.

    python tests/run_reproductions.py ROWS… [--python PYTHON] [--distinct details] [--keep FOLDER]

A run for each ledger entry is picked, and of unlisted deviations one for each distinct set of failing checks (or, with
`--distinct details`, for each distinct detail). The scripts run with `-I`, so that they cannot import this project.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from conformance.cases.claims import backend
from conformance.cases.runs import runs
from conformance.errors import UsageError
from conformance.progress import progress
from conformance.repro.least.text import shows
from conformance.repro.script import script
from conformance.results.known import Entry
from conformance.results.ledger_file import load
from conformance.results.rows import Row, read

TIMEOUT = 120.0
"""Limit for one script, in seconds. A script takes a few seconds, most of them for the import of torch."""

FIGURES = str.maketrans("", "", "0123456789.-")
"""A translation that deletes figures, because details of the same kind differ in them."""


@dataclass(frozen=True)
class Reproduction:
    """The checks that a row fails, and those that its script showed: None if its exit status contradicts its output.

    `output` is the exit status with the last line of output, or says that the script timed out.
    """

    id: str
    failed: frozenset[str]
    showed: frozenset[str] | None
    output: str

    @property
    def agrees(self) -> bool:
        return self.failed == self.showed


def kinds(row: Row, entries: Iterable[Entry], distinct: str) -> set[tuple[object, ...]]:
    """The kinds of deviations of a row: its ledger entries, or else its failing checks (or its detail)."""
    listed: set[tuple[object, ...]] = {
        ("entry", entry.id) for entry in entries if entry.matches(row.id) and entry.check <= row.failed
    }
    return listed or {(row.failed, row.detail.translate(FIGURES) if distinct == "details" else "")}


def picked(
    rows: Iterable[Row], entries: Iterable[Entry], distinct: str, seen: set[tuple[object, ...]]
) -> Iterator[Row]:
    """Yield the first row of every kind of deviation that is not in `seen`, and add its kinds to `seen`."""
    for row in rows:
        if row.failed and (new := kinds(row, entries, distinct) - seen):
            seen |= new
            yield row


def scripts(rows: Sequence[Row], entries: Mapping[str, Entry], isa: str | None) -> dict[str, str]:
    """The script of every row, by run id.

    Raises UsageError for a row without findings, and for one whose run no registered backend has.
    """
    engines = {(row.backend, row.engine) for row in rows}
    known = {run.id: run for name, engine in sorted(engines) for run in runs(backend(name), [engine])}
    if missing := [row.id for row in rows if row.id not in known]:
        raise UsageError(f"no such run any more: {missing[0]}")
    return {row.id: script(known[row.id], row, entries.get(row.known or ""), isa=isa) for row in rows}


def reproduce(row: Row, path: Path, python: str) -> Reproduction:
    """Run one script in an isolated interpreter."""
    try:
        process = subprocess.run(
            [python, "-I", str(path)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            cwd=path.parent,
        )
    except subprocess.TimeoutExpired:
        return Reproduction(row.id, row.failed, None, f"no end after {TIMEOUT:.0f} s")
    showed = frozenset(re.findall(r"^DEVIATES (\w+):", process.stdout, re.M))
    if process.returncode < 0 and shows(process.stdout, "crashes"):  # a least script ends its own process
        return Reproduction(row.id, row.failed, frozenset({"crashes"}), f"signal {-process.returncode}")
    output = (process.stderr.strip() or process.stdout.strip()).splitlines()
    possible = process.returncode == int(bool(showed))
    return Reproduction(
        row.id,
        row.failed,
        showed if possible else None,
        f"exit status {process.returncode}: {output[-1] if output else ''}",
    )


def reproduced(
    rows: Sequence[Row], texts: Mapping[str, str], folder: Path, stem: str, python: str
) -> Iterator[Reproduction]:
    """Write the scripts, run them in parallel, and yield their reproductions in the order of the rows."""
    paths = [folder / f"{stem}-{number}.py" for number in range(len(rows))]
    for row, path in zip(rows, paths, strict=True):
        path.write_text(texts[row.id], encoding="utf-8")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reproductions = pool.map(lambda row, path: reproduce(row, path, python), rows, paths)
        yield from progress(reproductions, stem, len(rows))


def outcome(checks: frozenset[str] | None) -> str:
    return "no end" if checks is None else ", ".join(sorted(checks)) or "conforms"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the reproductions of rows files.")
    parser.add_argument("rows", nargs="+", type=Path, metavar="ROWS")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch that runs the scripts")
    parser.add_argument(
        "--distinct", choices=("checks", "details"), default="checks", help="what tells unlisted deviations apart"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the scripts here")
    arguments = parser.parse_args(argv)
    seen: set[tuple[object, ...]] = set()
    entries = {entry.id: entry for entry in load()}
    total = wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for path in arguments.rows:
            file = read(path)
            rows = [*picked(file.rows, entries.values(), arguments.distinct, seen)]
            texts = scripts(rows, entries, file.header.get("isa_limit"))
            for reproduction in reproduced(rows, texts, folder, path.stem, arguments.python):
                total += 1
                if not reproduction.agrees:
                    wrong += 1
                    print(
                        f"{reproduction.id}\n    row: {outcome(reproduction.failed)}; "
                        f"script: {outcome(reproduction.showed)}; {reproduction.output}",
                        flush=True,
                    )
    shown = sum(kind[0] == "entry" for kind in seen)
    print(f"{total} reproductions of {shown} of {len(entries)} ledger entries, {wrong} differ from their rows")
    return int(bool(wrong))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        sys.exit(f"error: {error}")
