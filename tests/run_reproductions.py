"""Run the reproductions of rows files and compare the checks that they fail with those of their rows.

    python tests/run_reproductions.py ROWS… [--python PYTHON] [--distinct details] [--keep FOLDER] [--least]

A run for each ledger entry is picked, and of unlisted deviations one for each distinct set of failing checks (or, with
`--distinct details`, for each distinct detail). The scripts run with `-I`, so that they cannot import this project.
With `--least`, the worst run of each entry is picked, its least script shows one of its checks, and their lines are counted.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from conformance.cases.claims import backend
from conformance.cases.runs import runs
from conformance.errors import UsageError
from conformance.progress import progress
from conformance.repro.least.script import NoLeastScript, least, severity
from conformance.repro.script import script
from conformance.results.ledger import Entry, load
from conformance.results.rows import Row, RowsFile, read

TIMEOUT = 120.0
"""Limit for one script, in seconds. A script takes a few seconds, most of them for the import of torch."""

MOST_LINES = 40
"""Lines that a least script should have at most."""

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
    output = (process.stderr.strip() or process.stdout.strip()).splitlines()
    # a script prints a crash before it happens, so the crash counts only if a signal then kills the process
    possible = process.returncode < 0 if "crashes" in showed else process.returncode == int(bool(showed))
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


def worst(rows: Iterable[Row], entries: Iterable[Entry]) -> dict[str, Row]:
    """The worst row of every ledger entry that some row shows, by the entry's id."""
    found: dict[str, Row] = {}
    entries = [*entries]
    for row in rows:
        matching = [entry for entry in entries if row.known == entry.id or entry.matches(row.id)] if row.failed else []
        shown = [entry.id for entry in matching if entry.check & row.failed]
        for entry in shown:
            if entry not in found or severity(row) < severity(found[entry]):
                found[entry] = row
    return found


def least_reproduced(row: Row, path: Path, python: str, isa: str | None) -> Reproduction:
    """Write the least script of a row and run it. It agrees if it shows one of the checks that the row fails."""
    run = next(run for run in runs(backend(row.backend), [row.engine], [row.id]) if run.id == row.id)
    try:
        path.write_text(least(run, row, isa=isa), encoding="utf-8")
    except NoLeastScript as error:
        return Reproduction(row.id, row.failed, None, str(error))
    found = reproduce(row, path, python)
    one = found.showed is not None and len(found.showed) == 1 and found.showed <= row.failed
    return replace(found, failed=found.showed if one and found.showed else row.failed)


def measure_least(files: Sequence[RowsFile], entries: Iterable[Entry], folder: Path, python: str) -> int:
    """Print which ledger entries have a least script that agrees, and how many lines these have."""
    rows = worst((row for file in files for row in file.rows), entries)
    isa = next((file.header.get("isa_limit") for file in files), None)
    lines: dict[str, int] = {}
    for entry, row in progress(sorted(rows.items()), "least", len(rows)):
        path = folder / f"{entry}.py"
        found = least_reproduced(row, path, python, isa)
        if found.agrees:
            lines[entry] = len(path.read_text(encoding="utf-8").splitlines())
            print(f"{entry}: {lines[entry]} lines", flush=True)
        else:
            print(f"{entry}: {found.id}\n    {found.output}", flush=True)
    counts = sorted(lines.values())
    if counts:
        tenth = counts[min(len(counts) - 1, round(0.9 * len(counts)))]
        short = sum(count <= MOST_LINES for count in counts)
        print(
            f"{len(counts)} least scripts of {len(rows)} ledger entries, {short} of at most {MOST_LINES} lines: median "
            f"{statistics.median(counts):g}, 90th percentile {tenth}, longest {counts[-1]}"
        )
    return int(len(counts) < len(rows))


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
    parser.add_argument(
        "--least", action="store_true", help="run the least script of the worst run of each ledger entry"
    )
    parser.add_argument("--entry", action="append", default=[], metavar="ID", help="with --least, only these entries")
    arguments = parser.parse_args(argv)
    seen: set[tuple[object, ...]] = set()
    entries = {entry.id: entry for entry in load()}
    total = wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.least:
            wanted = [entry for entry in entries.values() if entry.id in arguments.entry or not arguments.entry]
            return measure_least([*map(read, arguments.rows)], wanted, folder, arguments.python)
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
