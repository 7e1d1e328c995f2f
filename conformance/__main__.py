"""The command line: `python -m conformance claims | show | repro | golden | report | merge | diff | …`.

torch takes a second to load, and an instruction set limit has to be set before, so nothing here imports it at the top.
"""

import argparse
import fnmatch
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from conformance.errors import UsageError
from conformance.host.isa import ISA_LIMITS, limit_isa
from conformance.markdown import plain

if TYPE_CHECKING:
    from conformance.cases.claims import BackendClaims
    from conformance.cases.runs import Run
    from conformance.goldens.regenerate import Recomputed
    from conformance.goldens.store import Store
    from conformance.reports.gathered import Gathered
    from conformance.results.ledger import Entry

LISTED = 10
"""Ids listed where a glob matches several runs."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are usage errors like any other: one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = Parser(prog="python -m conformance", description="Are the promises of a PyTorch BackendConfig kept?")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    claims = commands.add_parser("claims", help="list what the backend configs promise")
    claims.set_defaults(command=claims_command)
    which = claims.add_mutually_exclusive_group()
    which.add_argument(
        "--backend", action="append", default=[], metavar="NAME", help="this backend's claims; repeatable"
    )
    which.add_argument(
        "--backend-config", metavar="MODULE:CALLABLE", help="the claims of the BackendConfig that this returns"
    )
    claims.add_argument(
        "--json", action="store_true", help="print JSON with the patterns, engines and runs of every claim"
    )
    for name, command, text in (
        ("show", show_command, "run one run and print everything about it: source, graphs, kernels, numbers, checks"),
        ("repro", repro_command, "print a script that needs torch alone and comes to the same finding as a run"),
    ):
        one = commands.add_parser(name, help=text, description=text)
        one.set_defaults(command=command)
        one.add_argument("run", metavar="ID", help="a run id, or a glob that matches exactly one")
        one.add_argument(
            "--backend-config", metavar="MODULE:CALLABLE", help="where the config of an unregistered backend comes from"
        )
        one.add_argument("--isa", metavar="NAME", help=f"limit the instruction set: {', '.join(ISA_LIMITS)}")
    text = "render which constraints torch enforces, from rows files, as markdown"
    constraints = commands.add_parser("constraints", help=text, description=text)
    constraints.set_defaults(command=constraints_command)
    constraints.add_argument("rows", metavar="ROWS", nargs="+", help="rows files of conformance/test_constraints.py")
    constraints.add_argument(
        "--ledger",
        action="append",
        metavar="DIR",
        help="folder of known deviations (default conformance/known); repeatable",
    )
    _add_reports(commands)
    _bench(commands)
    golden = commands.add_parser("golden", help="check, update or compare the stored goldens")
    actions = golden.add_subparsers(title="actions", required=True, metavar="ACTION")
    for name, command, text in (
        ("check", golden_check_command, "recompute every golden and say which stored ones are not what comes out"),
        ("update", golden_update_command, "replace the stored goldens by recomputed ones and say what changed"),
    ):
        one = actions.add_parser(name, help=text, description=text)
        one.set_defaults(command=command)
        one.add_argument(
            "--case", action="append", default=[], metavar="GLOB", help="only those of these runs; repeatable"
        )
        one.add_argument("--golden", metavar="DIR", help="folder of goldens (default golden)")
    text = "show how two versions of the goldens differ, side by side"
    diff = actions.add_parser("diff", help=text, description=text)
    diff.set_defaults(command=golden_diff_command)
    diff.add_argument("old", metavar="OLD", help="a folder or a git revision")
    diff.add_argument("new", metavar="NEW", nargs="?", help="likewise (default: golden/ as it is)")
    diff.add_argument("--case", action="append", default=[], metavar="GLOB", help="only these goldens; repeatable")
    return top


def _add_reports(commands: "argparse._SubParsersAction[Any]") -> None:
    """The commands that show rows files."""
    ledgers = argparse.ArgumentParser(add_help=False)
    ledgers.add_argument("rows", metavar="ROWS", nargs="+", help="rows files, merged or not")
    ledgers.add_argument(
        "--ledger",
        action="append",
        metavar="DIR",
        help="folder of known deviations (default conformance/known); repeatable: each file is held to the one it names",
    )
    text = "render rows files as a folder of HTML that opens from disk"
    report = commands.add_parser("report", help=text, description=text, parents=[ledgers])
    report.set_defaults(command=report_command)
    report.add_argument("-o", dest="out", metavar="DIR", required=True, help="the folder")
    text = "what deviates, grouped by cause, as markdown for an upstream report or a release note"
    findings = commands.add_parser("findings", help=text, description=text, parents=[ledgers])
    findings.set_defaults(command=findings_command)
    ci = commands.add_parser("ci", help="what continuous integration shows of rows files")
    actions = ci.add_subparsers(title="actions", required=True, metavar="ACTION")
    for name, command, text in (
        ("summary", ci_summary_command, "a job summary in markdown, cut to what GitHub takes"),
        ("annotations", ci_annotations_command, "workflow commands that mark what is new"),
        ("badge", ci_badge_command, "JSON for an endpoint badge of shields.io"),
    ):
        one = actions.add_parser(name, help=text, description=text, parents=[ledgers])
        one.set_defaults(command=command)
    text = "join rows files of different hosts, engines, limits and versions into one"
    merge = commands.add_parser("merge", help=text, description=text)
    merge.set_defaults(command=merge_command)
    merge.add_argument("rows", metavar="ROWS", nargs="+", help="rows files, merged or not")
    merge.add_argument("-o", dest="out", metavar="OUT", required=True, help="the rows file to write")
    text = "what changed between two rows files; the exit status is 1 if anything got worse"
    diff = commands.add_parser("diff", help=text, description=text)
    diff.set_defaults(command=diff_command)
    diff.add_argument("before", metavar="A", help="a rows file, merged or not")
    diff.add_argument("after", metavar="B", help="likewise")
    diff.add_argument("--format", choices=("text", "markdown", "json"), default="text", help="default: text")
    text = "print the JSON Schema of a line of rows files, or of the details beside them"
    schema = commands.add_parser("schema", help=text, description=text)
    schema.set_defaults(command=schema_command)
    schema.add_argument(
        "of", metavar="OF", nargs="?", choices=("rows", "details"), default="rows", help="rows or details"
    )


def _bench(commands: "argparse._SubParsersAction[Any]") -> None:
    """The commands that show timings, which reports have."""
    from conformance.reports.bench import add

    add(commands)


def claims_command(arguments: argparse.Namespace) -> int:
    from conformance.cases.claims import backend, third_party
    from conformance.configs.registry import BACKENDS

    if arguments.backend_config:
        backends = [third_party(arguments.backend_config)]
    else:
        backends = [backend(name) for name in dict.fromkeys(arguments.backend or BACKENDS)]
    if arguments.json:
        print(json.dumps([describe_claims(one) for one in backends], indent=1, ensure_ascii=False))
        return 0
    for one in backends:
        print(f"{one.name}: {one.patterns} patterns, {len(one.claims)} claims")
        for claim in one.claims:
            print(claim.id)
    return 0


def describe_claims(backend: "BackendClaims") -> dict[str, Any]:
    """A backend with its claims as JSON values.

    A claim that the operator tables do not cover has runs all the same: they are what says so in the rows.
    """
    from conformance.cases.runs import runs
    from conformance.cases.sources import missing_operators

    count = Counter(run.claim.id for run in runs(backend))
    return {
        "name": backend.name,
        "patterns": backend.patterns,
        "claims": len(backend.claims),
        "engines": list(backend.engines),
        "list": [
            {
                "id": claim.id,
                "pattern": claim.pattern,
                "dtype_config": claim.dtype_config,
                "covered": not missing_operators(claim),
                "runs": count[claim.id],
            }
            for claim in backend.claims
        ],
    }


def candidates(run_id: str, backend_config: str | None) -> "Iterator[Run]":
    """Yield the runs that an id or glob can mean: those of its backend, on its engine where it names one."""
    from conformance.cases.claims import backend, third_party
    from conformance.cases.runs import runs
    from conformance.configs.registry import BACKENDS
    from conformance.engines.registry import engine

    _, _, on = run_id.rpartition("@")
    engines = [] if on == run_id or any(character in on for character in "*?[") else [on]
    for name in engines:
        engine(name)
    wanted = run_id.partition("/")[0]
    if backend_config:
        found = [third_party(backend_config)]
    else:
        found = [backend(name) for name in BACKENDS if fnmatch.fnmatchcase(name, wanted)] or [backend(wanted)]
    for one in found:
        yield from runs(one, engines)


def find(run_id: str, backend_config: str | None = None) -> "Run":
    """Return the run of an id, or the only one that a glob matches.

    Raises UsageError naming the ids that are similar, or those that match. An id comes before a glob, because patterns
    may hold an asterisk themselves.
    """
    import difflib

    known = {run.id: run for run in candidates(run_id, backend_config)}
    if run_id in known:
        return known[run_id]
    matching = [one for one in known if fnmatch.fnmatchcase(one, run_id)]
    if len(matching) == 1:
        return known[matching[0]]
    if matching:
        more = f" and {len(matching) - LISTED} more" if len(matching) > LISTED else ""
        raise UsageError(f"{run_id!r} matches {len(matching)} runs: {' '.join(matching[:LISTED])}{more}")
    close = difflib.get_close_matches(run_id, known, n=3, cutoff=0.5)
    raise UsageError(f"no run {run_id!r}" + (f": did you mean {' or '.join(close)}" if close else ""))


def ledger_entries(run: "Run", isa_limit: str | None) -> "list[Entry]":
    """The ledger's entries that speak of a run on this host."""
    from conformance.selection import Selection

    selection = Selection(isa_limit=isa_limit)
    return [entry for entry in selection.entries if entry.applies(selection.host) and entry.matches(run.id)]


def selected(arguments: argparse.Namespace) -> "tuple[Run, list[Entry], str | None]":
    """The run that `show` and `repro` are asked for, its ledger entries, and why it cannot run here, or None."""
    if arguments.isa:
        limit_isa(arguments.isa)
    run = find(arguments.run, arguments.backend_config)
    from conformance.engines.availability import probe

    reason: str | None
    if run.variant is None:
        reason = f"{run.id}: not covered: no entry for {run.claim.pattern} in conformance/cases/operators/"
    elif run.profile == "constraints":  # which torch enforces, whatever the engine
        reason = None
    else:
        reason = probe(run.engine)
        reason = reason and f"{run.id}: engine {run.engine} is unavailable here: {reason}"
    return run, ledger_entries(run, arguments.isa), reason


def show_command(arguments: argparse.Namespace) -> int:
    run, entries, reason = selected(arguments)
    if reason:
        print(reason)
        return 1
    from conformance.show import show, shown

    for part in shown(run, entries) if run.profile == "constraints" else show(run, entries):
        print(part, flush=True)
    return 0


def repro_command(arguments: argparse.Namespace) -> int:
    run, entries, reason = selected(arguments)
    if reason:
        print(reason, file=sys.stderr)
        return 1
    from conformance.execution.batch import judge_runs
    from conformance.host.isolation import Raised
    from conformance.repro.script import script

    (judged,) = judge_runs([run], lambda _: None)
    if isinstance(judged, Raised):
        print(f"{run.id}: the suite itself fails on it, which is our fault:\n{judged.traceback}", file=sys.stderr)
        return 1
    print(script(run, judged.row, entries[0] if entries else None, isa=arguments.isa), end="")
    return 0


def constraints_command(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from conformance.paths import KNOWN
    from conformance.reports.constraints import document
    from conformance.results.ledger import load
    from conformance.results.rows import read_all

    entries = [entry for folder in arguments.ledger or [KNOWN] for entry in load(Path(folder))]
    rows = [row for path in arguments.rows for part in read_all(Path(path)) for row in part.rows]
    given = " ".join(["--ledger " + folder for folder in arguments.ledger or ()] + arguments.rows)
    for line in document(rows, entries, f"python -m conformance constraints {given}"):
        print(line)
    return 0


def _gathered(arguments: argparse.Namespace) -> "Gathered":
    """The rows files that are asked for, with the ledger."""
    from pathlib import Path

    from conformance.paths import KNOWN
    from conformance.reports.gathered import Gathered

    return Gathered([*map(Path, arguments.rows)], [*map(Path, arguments.ledger or [KNOWN])])


def report_command(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from conformance.reports.html import write

    print(write(_gathered(arguments), Path(arguments.out)))
    return 0


def findings_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.findings import document

    for line in document(_gathered(arguments)):
        print(line)
    return 0


def ci_summary_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.ci import summary

    print(summary(_gathered(arguments)), end="")
    return 0


def ci_annotations_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.ci import annotations

    for line in annotations(_gathered(arguments)):
        print(line)
    return 0


def ci_badge_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.ci import badge

    print(json.dumps(badge(_gathered(arguments)), indent=1))
    return 0


def merge_command(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from conformance.reports.merging import merge

    parts = merge([*map(Path, arguments.rows)], Path(arguments.out))
    print(f"{arguments.out}: {sum(len(part.file.rows) for part in parts)} rows of {len(parts)} invocations")
    return 0


def diff_command(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from conformance.reports.difference import FORMATS, compare

    found = compare(Path(arguments.before), Path(arguments.after))
    for line in FORMATS[arguments.format](found):
        print(line)
    return 1 if found.worse else 0


def schema_command(arguments: argparse.Namespace) -> int:
    from conformance.results import diagnostics, rows

    print(json.dumps((diagnostics if arguments.of == "details" else rows).schema(), indent=2, ensure_ascii=False))
    return 0


def _recomputed(arguments: argparse.Namespace) -> "tuple[Store, Recomputed]":
    """The store that is asked for, and the goldens of the selected runs of every registered backend: of all of them, those
    that are seldom made too, where none are selected."""
    from pathlib import Path

    import torch

    from conformance.goldens.regenerate import recompute
    from conformance.goldens.store import Store
    from conformance.paths import GOLDEN
    from conformance.selection import Selection

    torch.set_num_threads(1)  # for models this small a second thread costs more than it does
    selection = Selection(globs=arguments.case)
    return Store(Path(arguments.golden or GOLDEN)), recompute(selection.runs if arguments.case else selection.possible)


def golden_check_command(arguments: argparse.Namespace) -> int:
    from conformance.goldens.regenerate import check

    store, made = _recomputed(arguments)
    found = [*check(store, made, whole=not arguments.case)]
    for line in found:
        print(line)
    print(f"{len(made)} goldens recomputed" + (f", {len(found)} problems" if found else ": all as stored"))
    if found:
        print("If what is computed is meant to have changed: python -m conformance golden update")
    return 1 if found else 0


def golden_update_command(arguments: argparse.Namespace) -> int:
    from conformance.goldens.regenerate import update

    store, made = _recomputed(arguments)
    for line in update(store, made, whole=not arguments.case):
        print(line)
    return 0


def golden_diff_command(arguments: argparse.Namespace) -> int:
    from conformance.goldens.regenerate import compare, version
    from conformance.paths import GOLDEN

    with version(arguments.old) as old, version(arguments.new or str(GOLDEN)) as new:
        for line in compare(old, new, arguments.case):
            print(line)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 if it could not do what was asked, 2 for wrong usage."""
    try:
        arguments = parser().parse_args(argv)
        status: int = arguments.command(arguments)
        sys.stdout.flush()
    except UsageError as error:
        print(f"conformance: error: {plain(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # whoever read has had enough; what Python would still flush at exit goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
