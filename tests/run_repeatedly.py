"""Run the whole suite repeatedly, in different orders and with different numbers of workers, and compare the rows.

    python tests/run_repeatedly.py [--times N] [--backend NAME …] [--case GLOB …] [--keep FOLDER]

The second invocation takes no shortcut (conformance/shortcuts.py). Everything in a row except its seconds has to be the same
every time. Differences are printed, and the exit status is 1, as it is if an invocation fails. Rows files that an interrupted
call has left in FOLDER are used again: run the same revision.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from conformance.results.rows import Row, read

ROOT = Path(__file__).parent.parent
WORKERS = ("2", "1", "3", "0", "4")
"""Numbers of workers, in turn; 0 is a single process."""
WITHOUT_SHORTCUTS = 1
"""The number of the invocation that takes no shortcut."""
SHOWN = 20
"""Most differences printed."""


def command(backend: str, number: int, results: Path, globs: Sequence[str] = ()) -> list[str]:
    """Return the command of an invocation of the runs that match a glob, or of all. Each number has its own order."""
    workers = WORKERS[number % len(WORKERS)]
    shuffled = ["--random-order", f"--random-order-seed={number}", "--random-order-bucket=global"]
    shortcuts = ["--no-shortcuts"] if number == WITHOUT_SHORTCUTS else []
    options = ["-q", "-p", "no:cacheprovider", "-n", workers, "--backend", backend, "--results", str(results)]
    options += [argument for glob in globs for argument in ("--case", glob)]
    return [sys.executable, "-m", "pytest", "conformance", *shuffled, *shortcuts, *options]


def constant_fields(row: Row) -> Mapping[str, Any]:
    """Return the fields that have to be the same every time."""
    return {name: value for name, value in asdict(row).items() if name != "seconds"}


def differences(first: Iterable[Row], again: Iterable[Row]) -> Iterator[str]:
    """Yield a line for each difference between two sets of rows."""
    before, after = ({row.id: constant_fields(row) for row in rows} for rows in (first, again))
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            yield f"{name}: has a row in one invocation and none in another"
            continue
        for field, value in before[name].items():
            if after[name][field] != value:
                yield f"{name}: {field}: {value!r}, then {after[name][field]!r}"


def invoke(backend: str, number: int, results: Path, globs: Sequence[str]) -> str:
    """Run one backend once and print on stderr how the invocation ended. Return its problem, or an empty string."""
    done = subprocess.run(
        command(backend, number, results, globs), cwd=ROOT, capture_output=True, text=True, check=False
    )
    last = (done.stdout.strip().splitlines() or ["it printed nothing"])[-1]
    name = f"{backend}, order {number}, {WORKERS[number % len(WORKERS)]} workers"
    print(f"{name}: {last}", file=sys.stderr, flush=True)
    if not results.exists():
        return f"{name}: no rows: exit status {done.returncode}: {done.stderr.strip()[-500:]}"
    return f"{name}: exit status {done.returncode}: {last}" if done.returncode else ""


def repeated(backend: str, times: int, folder: Path, globs: Sequence[str]) -> Iterator[str]:
    """Run one backend `times` times, except where `folder` has the rows, and yield problems and differences."""
    first: Sequence[Row] = ()
    for number in range(times):
        results = folder / f"{backend}-{number}.jsonl"
        if not results.exists() and (problem := invoke(backend, number, results, globs)):
            yield problem
            if results.exists():
                results = results.rename(results.with_suffix(".failed"))  # the next call runs it again
        if results.exists():
            rows = read(results).rows
            yield from differences(first or rows, rows)
            first = first or rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=10, metavar="N", help="number of invocations (default 10)")
    parser.add_argument("--backend", action="append", default=[], metavar="NAME", help="run this backend; repeatable")
    parser.add_argument("--case", action="append", default=[], metavar="GLOB", help="only these runs; repeatable")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the rows files in this folder and continue from them"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        backends = options.backend or ["qnnpack", "fbgemm", "onednn"]
        problems = [
            problem for backend in backends for problem in repeated(backend, options.times, folder, options.case)
        ]
    print("\n".join(problems[:SHOWN]) or f"{options.times} times the same rows")
    if len(problems) > SHOWN:
        print(f"… and {len(problems) - SHOWN} more")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
