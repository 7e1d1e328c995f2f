"""Run the whole suite under conditions in which machines differ, each time in another order, and compare the rows.

    python tests/run_repeatedly.py [--times N] [--backend NAME …] [--case GLOB …] [--keep FOLDER]

The conditions are CONDITIONS: workers, threads, what allocators and hashing do, load, the user, the folder, and limits of the
instruction set; one takes no shortcut (conformance/shortcuts.py). Everything in a row except its seconds has to be the same
every time with the same instruction set. A table of conditions is printed, then the differences; the exit status is 1 if
there are any, or if an invocation fails. Rows files that an interrupted call has left in FOLDER are used again: run the same
revision.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from conformance.results.rows import Row, read

ROOT = Path(__file__).parent.parent
SHOWN = 20
"""Most differences printed."""
HEAD = """\
| backend | condition | invocations | failed | rows of each | different |
| --- | --- | --: | --: | --: | --: |"""


@dataclass(frozen=True)
class Condition:
    """What an invocation is run under.

    `workers` is the number of pytest-xdist's workers, 0 a single process; `variables` are set in the environment. `beside`
    runs a process for each core that never waits. `copied` names a copy of the source tree; nobody may write to it if
    `read_only`.
    """

    name: str
    workers: int = 2
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    isa: str = ""
    beside: bool = False
    copied: str = ""
    read_only: bool = False


CONDITIONS = (
    Condition("2 workers"),
    Condition("1 worker, no shortcuts", 1, ("--no-shortcuts",)),
    Condition("a single process", 0),
    Condition("4 workers", 4),
    *(Condition(f"OMP_NUM_THREADS={count}", variables={"OMP_NUM_THREADS": count}) for count in ("1", "2", "4")),
    Condition("MALLOC_PERTURB_=165", variables={"MALLOC_PERTURB_": "165"}),
    Condition("MALLOC_ARENA_MAX=1", variables={"MALLOC_ARENA_MAX": "1"}),
    Condition("no tcache", variables={"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}),
    Condition("PYTHONHASHSEED=0", variables={"PYTHONHASHSEED": "0"}),
    Condition("LC_ALL=C", variables={"LC_ALL": "C"}),
    Condition("beside busy processes", beside=True),
    Condition("a path with spaces", copied="a path with spaces"),
    Condition("read-only tree, ordinary user", copied="read-only", read_only=True),
    Condition("--isa avx2", isa="avx2"),
    Condition("--isa avx512f", isa="avx512f"),
)
"""Conditions in turn."""


def condition_of(number: int) -> Condition:
    """The condition of an invocation."""
    return CONDITIONS[number % len(CONDITIONS)]


def command(backend: str, number: int, results: Path, globs: Sequence[str] = ()) -> list[str]:
    """Return the command of an invocation of the runs that match a glob, or of all. Each number has its own order."""
    condition = condition_of(number)
    shuffled = ["--random-order", f"--random-order-seed={number}", "--random-order-bucket=global"]
    options = ["-q", "-p", "no:cacheprovider", "-n", str(condition.workers), "--backend", backend, *condition.options]
    options += ["--isa", condition.isa] if condition.isa else []
    options += ["--results", str(results), *(argument for glob in globs for argument in ("--case", glob))]
    return [sys.executable, "-m", "pytest", "conformance", *shuffled, *options]


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Run processes that never wait."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def tree(condition: Condition) -> Iterator[Path]:
    """The source tree of an invocation: this one, or a copy."""
    if not condition.copied:
        yield ROOT
        return
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / condition.copied
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".tox", ".*_cache", "__pycache__", "out"))
        for path in (copy, *copy.rglob("*")) if condition.read_only else ():
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            yield copy
        finally:
            for folder in (copy, *copy.rglob("*/")) if condition.read_only else ():
                folder.chmod(0o755)


def execute(backend: str, number: int, results: Path, globs: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run one backend under the condition of a number."""
    condition = condition_of(number)
    # the superuser may write whatever modes say; in a user namespace of its own it is an ordinary user
    user = ["unshare", "--user", "--"] if condition.read_only and os.geteuid() == 0 else []
    arguments = [*user, *command(backend, number, results.absolute(), globs)]
    environment = {**os.environ, **condition.variables}
    with tree(condition) as folder, busy((os.cpu_count() or 1) * condition.beside):
        return subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False)


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
        for name_of_field, value in before[name].items():
            if after[name][name_of_field] != value:
                yield f"{name}: {name_of_field}: {value!r}, then {after[name][name_of_field]!r}"


def invoke(backend: str, number: int, results: Path, globs: Sequence[str]) -> str:
    """Run one backend once and print on stderr how the invocation ended. Return its problem, or an empty string."""
    done = execute(backend, number, results, globs)
    last = (done.stdout.strip().splitlines() or ["it printed nothing"])[-1]
    name = f"{backend}, order {number}, {condition_of(number).name}"
    print(f"{name}: {last}", file=sys.stderr, flush=True)
    if not results.exists():
        return f"{name}: no rows: exit status {done.returncode}: {done.stderr.strip()[-500:]}"
    return f"{name}: exit status {done.returncode}: {last}" if done.returncode else ""


@dataclass
class Repetition:
    """Invocations of one backend under one condition: how many have rows, how many of these failed, and their rows."""

    invocations: int = 0
    failed: int = 0
    rows: int = 0
    different: int = 0


def repeated(backend: str, times: int, folder: Path, globs: Sequence[str]) -> tuple[dict[str, Repetition], list[str]]:
    """Run one backend `times` times, except where `folder` has the rows. Return what is known by condition, and problems."""
    found: defaultdict[str, Repetition] = defaultdict(Repetition)
    problems: list[str] = []
    first: dict[str, Sequence[Row]] = {}
    for number in range(times):
        condition = condition_of(number)
        results = folder / f"{backend}-{number}.jsonl"
        if not results.exists() and (problem := invoke(backend, number, results, globs)):
            problems.append(problem)
            if results.exists():
                results = results.rename(results.with_suffix(".failed"))  # the next call runs it again
        if results.exists():
            rows = read(results).rows
            differing = [*differences(first.setdefault(condition.isa, rows), rows)]
            problems += differing
            of = found[condition.name]
            of.invocations += 1
            of.failed += results.suffix == ".failed"
            of.rows = len(rows)
            of.different += len(differing)
    return found, problems


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--times",
        type=int,
        default=len(CONDITIONS),
        metavar="N",
        help="number of invocations (default: one under each condition)",
    )
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
        done = {backend: repeated(backend, options.times, folder, options.case) for backend in backends}
    problems = [problem for _, of_backend in done.values() for problem in of_backend]
    print(HEAD)
    for backend, (found, _) in done.items():
        for condition, of in found.items():
            print(f"| {backend} | {condition} | {of.invocations} | {of.failed} | {of.rows:,} | {of.different} |")
    print("\n".join(problems[:SHOWN]) or f"{options.times} times the same rows")
    if len(problems) > SHOWN:
        print(f"… and {len(problems) - SHOWN} more")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
