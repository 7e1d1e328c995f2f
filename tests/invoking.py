"""Invocations of the suite in processes of their own: forks that have torch, or new interpreters."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from forking import run_module

from conformance.results.rows import Row, RowsFile, read
from conformance.results.where import Where

T = TypeVar("T")

ROOT = Path(__file__).parents[1]
SUITE = "conformance/test_conformance.py"
NATIVE = "torch.ao.quantization.backend_config.native:get_native_backend_config"


def entry(name: str, run_id: str, *checks: str) -> str:
    """The text of a ledger entry for the runs with an id that has wildcards."""
    return (
        f'[[finding]]\nid = "{name}"\ntitle = "the title of {name}"\nreason = "the reason of {name}"\n'
        f"shows = [{{ where = {where(run_id)}, must = {json.dumps(checks)} }}]\n"
    )


def where(run_id: str) -> Where:
    """The condition on runs with an id that has wildcards."""
    *parts, last = run_id.split("/")
    profile, _, engine = last.partition("@")
    fields = dict(zip(("backend", "pattern", "config", "flow", "variant"), parts, strict=False))
    return Where.of(
        {name: glob for name, glob in {**fields, "profile": profile, "engine": engine}.items() if glob not in ("", "*")}
    )


@dataclass(frozen=True)
class Invocation:
    """The exit status, output and rows file of an invocation."""

    status: int
    output: str
    results: Path

    @property
    def rows(self) -> dict[str, Row]:
        return {row.id: row for row in self.file.rows}

    @property
    def file(self) -> RowsFile:
        return read(self.results)


def options_of(results: Path, ledger: Path, arguments: Sequence[str], suite: str = SUITE) -> list[str]:
    """The arguments of pytest for an invocation that prints the outcome of every test."""
    options = ["-p", "no:cacheprovider", "-rA", "--results", str(results), "--ledger", str(ledger)]
    return [suite, *options, *arguments]


def invoke(
    folder: Path,
    *arguments: str,
    ledger: str = "",
    results: Path | None = None,
    suite: str = SUITE,
    sets_what_torch_reads: bool = False,
) -> Invocation:
    """Run the suite. `folder` is for the rows and the ledger, and for modules that the invocation imports.

    A new interpreter runs it if options or variables of the invocation set what torch reads when it is loaded.
    """
    folder.mkdir(exist_ok=True)
    (folder / "known").mkdir()
    (folder / "known" / "known.toml").write_text(ledger)
    results = results or folder / "rows.jsonl"
    options = options_of(results, folder / "known", arguments, suite)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    if not sets_what_torch_reads and "--isa" not in arguments:
        ending = run_module("pytest", options, ROOT, environment)
        return Invocation(ending.status, ending.output + ending.errors, results)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=ROOT, env=environment, capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    return Invocation(done.returncode, done.stdout + done.stderr, results)


def cases(*ids: str) -> list[str]:
    """The options that select cases."""
    return [option for run_id in ids for option in ("--case", run_id)]


def side_by_side(names: Iterable[str], invocation: Callable[[str], T]) -> Mapping[str, T]:
    """Return the invocation of each name, with as many at a time as there are cores."""
    names = list(names)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(invocation, names), strict=True))
