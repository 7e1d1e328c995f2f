"""Find the least script of each known finding that rows files show, run it, and count its lines.

    python tests/run_least_reproductions.py ROWS… [--python PYTHON] [--finding ID] [--write]

A script is that of the finding's worst run, or of the next one of which a least script was seen to deviate; a finding without
one has the whole reproduction of its worst run. Scripts run in an isolated interpreter. With `--write` the least ones
of findings that are worth a report to upstream are stored beside the ledger.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from conformance.cases.claims import backend
from conformance.cases.runs import runs
from conformance.errors import UsageError
from conformance.progress import progress
from conformance.reports.draft import severe
from conformance.reports.findings import Shown, shown
from conformance.reports.load import Report
from conformance.reports.support import table
from conformance.repro.execution import execute
from conformance.repro.least.script import NoLeastScript, least
from conformance.results.reproductions import Reproduced, record
from conformance.results.rows import Row

MOST_LINES = 40
"""Lines that a least script should have at most."""
TRIED = 4
"""The most runs of a finding whose least script is searched for."""


@dataclass(frozen=True)
class Task:
    """A finding with its worst runs, restricted to its checks, and the whole reproduction of the worst one."""

    finding: str
    rows: tuple[Row, ...]
    whole: str
    python: str
    isa: str | None


@dataclass(frozen=True)
class Found:
    """The script of a finding that was executed, or why there is none. `least` says whether it is a least one."""

    finding: str
    run: str
    least: bool = False
    reproduced: Reproduced | None = None
    reason: str = ""

    @property
    def lines(self) -> int:
        return len(self.reproduced.script.splitlines()) if self.reproduced else 0


def restricted(row: Row, checks: frozenset[str]) -> Row:
    """The row with the findings of some checks alone."""
    outcomes = {
        name: outcome if outcome != "fail" or name in checks else "skip" for name, outcome in row.checks.items()
    }
    return replace(row, checks=outcomes, findings=tuple(one for one in row.findings if one.check in checks))


def task(one: Shown, python: str, isa: str | None) -> Task:
    """The task of a finding: its worst runs, of different claims and forms where there are some."""
    checks = frozenset(check for entry in one.entries for check in entry.check)
    severe = [result for worst, result in one.runs if worst.severity is one.severity]
    distinct = {(result.row.pattern, result.form): result for result in reversed(severe)}
    chosen = [one.example, *(result for result in reversed(distinct.values()) if result is not one.example)]
    whole = next((result.details.reproduction for result in chosen if result.details), "")
    return Task(one.finding.id, tuple(restricted(result.row, checks) for result in chosen[:TRIED]), whole, python, isa)


def found(work: Task) -> Found:
    """The least script of a finding, executed in an interpreter of its own, or else its whole reproduction."""
    reason = ""
    for row in work.rows:
        try:
            run = next(run for run in runs(backend(row.backend), [row.engine], [row.id]) if run.id == row.id)
            return Found(work.finding, row.id, True, execute(least(run, row, isa=work.isa), work.python))
        except NoLeastScript as error:
            reason = str(error)
        except UsageError as error:
            reason = str(error)
    try:
        return Found(work.finding, work.rows[0].id, False, execute(work.whole, work.python), reason)
    except UsageError as error:
        return Found(work.finding, work.rows[0].id, reason=f"{reason}; the whole script: {error}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Find and run the least script of each known finding.")
    parser.add_argument("rows", nargs="+", type=Path, metavar="ROWS")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch that runs the scripts")
    parser.add_argument("--finding", action="append", default=[], metavar="ID", help="only this finding (repeatable)")
    parser.add_argument("--write", action="store_true", help="store the scripts beside the ledger")
    arguments = parser.parse_args(argv)
    report = Report(arguments.rows)
    isa = next((part.file.header.get("isa_limit") for part in report.parts), None)
    wanted = [one for one in shown(report) if one.finding.id in arguments.finding or not arguments.finding]
    tasks = [task(one, arguments.python, isa) for one in wanted]
    results: list[Found] = []
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for one in progress(pool.map(found, tasks), "findings", len(tasks)):
            results.append(one)
            text = f"{one.lines} lines" if one.least else f"{one.lines} lines, whole" if one.reproduced else "none"
            print(f"{one.finding}: {text}: {one.run}" + (f"\n    {one.reason}" if one.reason else ""), flush=True)
    if arguments.write:
        # a report has the script of every finding; only those worth a report to upstream are stored
        drafted = severe(table(report))
        stored = [one for one in results if one.least and one.finding in drafted]
        record({one.finding: one.reproduced.script for one in stored if one.reproduced})
    lines = sorted(one.lines for one in results if one.reproduced)
    if lines:
        tenth, short = lines[min(len(lines) - 1, round(0.9 * len(lines)))], sum(n <= MOST_LINES for n in lines)
        print(
            f"{len(lines)} scripts of {len(results)} findings agree, {sum(one.least for one in results)} of them least ones, "
            f"{short} of at most {MOST_LINES} lines: median {statistics.median(lines):g}, 90th percentile {tenth}, "
            f"longest {lines[-1]}"
        )
    return int(len(lines) < len(results))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        sys.exit(f"error: {error}")
