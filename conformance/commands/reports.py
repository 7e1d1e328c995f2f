"""Commands that read rows files, such as `report` and `diff`, and about tables of this revision, such as `migrate`."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.configs.engines import ENGINE_TABLE
from conformance.errors import UsageError
from conformance.suggestions import unknown

from .arguments import (
    add_actions,
    add_command,
    add_format,
    add_ledger,
    add_rows,
    entries_of,
    print_lines,
)

if TYPE_CHECKING:
    from conformance.cases.runs import Run
    from conformance.reports.load import Report
    from conformance.reports.workflows import Promise
    from conformance.results.known import Entry

    from .arguments import Commands


def add(commands: "Commands") -> None:
    text = "print a markdown table of the constraints that torch enforces"
    constraints = add_command(commands, "constraints", constraints_command, text)
    add_rows(constraints, "rows files of conformance/test_constraints.py")
    add_ledger(constraints)
    rows = argparse.ArgumentParser(add_help=False)
    add_rows(rows)
    add_ledger(rows, ": each rows file is judged by the ledger whose entries it names")
    text = "render rows files as a folder of HTML pages that open from disk"
    report = add_command(commands, "report", report_command, text, [rows])
    report.add_argument("-o", dest="out", metavar="DIR", required=True, help="the folder to write")
    text = "print the known findings as markdown, the most important first"
    listed = add_command(commands, "findings", findings_command, text, [rows])
    how = listed.add_mutually_exclusive_group()
    how.add_argument("--full", action="store_true", help="with the reproduction of the worst run of each")
    how.add_argument(
        "--by-version", action="store_true", help="since when each shows, and in which version it is mended"
    )
    _add_support(commands)
    _add_use(commands)
    text = "print a report of a known finding for upstream, with its reproduction run here; nothing is sent"
    draft = add_command(commands, "draft", draft_command, text)
    help_text = "the id of a known finding (default: list those that nobody has reported, with wrong numbers or worse)"
    draft.add_argument("finding", metavar="FINDING", nargs="?", help=help_text)
    text = (
        "rows files, such as those of quantizers (default: the table of this revision, which has the configs' claims)"
    )
    draft.add_argument("--rows", metavar="ROWS", nargs="+", help=text)
    add_ledger(draft)
    actions = add_actions(commands, "ci", "print rows files for continuous integration")
    for name, text in (
        ("summary", "print a job summary in markdown, cut to the size that GitHub accepts"),
        ("annotations", "print workflow commands that annotate new deviations"),
        ("badge", "print JSON for an endpoint badge of shields.io"),
    ):
        add_command(actions, name, ci_command, text, [rows]).set_defaults(action=name)
    text = "merge rows files of different hosts, engines, limits, versions and shards into one"
    merge = add_command(commands, "merge", merge_command, text)
    add_rows(merge)
    merge.add_argument("-o", dest="out", metavar="OUT", required=True, help="the rows file to write")
    merge.add_argument("--incomplete", action="store_true", help="merge even if shards of a selection are missing")
    text = "compare two rows files; the exit status is 1 if anything got worse"
    diff = add_command(commands, "diff", diff_command, text)
    diff.add_argument("before", metavar="A", help="the earlier rows file, merged or not")
    diff.add_argument("after", metavar="B", help="the later rows file, merged or not")
    add_format(diff)
    text = "print the JSON Schema of the lines of rows files, or of the details beside them"
    schema = add_command(commands, "schema", schema_command, text)
    schema.add_argument(
        "of", metavar="FILE", nargs="?", choices=("rows", "details"), default="rows", help="rows (default) or details"
    )


def constraints_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.constraints import document
    from conformance.results.rows import read_all, repro_command

    entries = entries_of(arguments.ledger)
    parts = [part for path in arguments.rows for part in read_all(Path(path))]
    rows = [row for part in parts for row in part.rows]
    commands = {row.id: repro_command(row.id, part.header.get("options", ())) for part in parts for row in part.rows}
    command_line = " ".join(["--ledger " + folder for folder in arguments.ledger or ()] + arguments.rows)
    return print_lines(document(rows, entries, f"python -m conformance constraints {command_line}", commands))


def _add_support(commands: "Commands") -> None:
    text = "print which engines do an operator right, and what is wrong with the others"
    support = add_command(commands, "support", support_command, text)
    support.add_argument("operator", metavar="OPERATOR", nargs="?", help="an operator of a pattern, such as nn.Conv2d")
    support.add_argument("--rows", metavar="ROWS", nargs="+", help="rows files (default: the table of this revision)")
    add_format(support, "csv")
    support.add_argument(
        "--write", action="store_true", help="write the table of this revision, and what is rendered from it"
    )
    support.add_argument(
        "--workflows",
        action="store_true",
        help="print torchao's workflows beside its own marks, from ROWS; or --write the page",
    )
    add_ledger(support)


def _add_use(commands: "Commands") -> None:
    text = "print what becomes of the layers of public networks: how many run right in integers, and what the others do"
    use = add_command(commands, "use", use_command, text)
    use.add_argument("network", metavar="NETWORK", nargs="?", help="a network of the corpus, such as resnet50")
    use.add_argument("--rows", metavar="ROWS", nargs="+", help="rows files (default: the shares of this revision)")
    use.add_argument(
        "--write", action="store_true", help="write the shares of this revision, and what is rendered from them"
    )
    add_ledger(use)


def _report(arguments: argparse.Namespace) -> "Report":
    """The rows files with their ledgers."""
    from conformance.paths import KNOWN
    from conformance.reports.load import Report

    return Report([*map(Path, arguments.rows)], [*map(Path, arguments.ledger or [KNOWN])])


def report_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.html import write

    print(write(_report(arguments), Path(arguments.out)))
    return 0


def findings_command(arguments: argparse.Namespace) -> int:
    from conformance.reports import findings, versions

    report = _report(arguments)
    lines = versions.document(report) if arguments.by_version else findings.document(report, full=arguments.full)
    return print_lines(lines)


def support_command(arguments: argparse.Namespace) -> int:
    from conformance.paths import ROOT
    from conformance.reports import support

    if arguments.workflows:
        return _workflows(arguments)
    entries = entries_of(arguments.ledger)
    made = support.table(_report(arguments)) if arguments.rows else support.recorded(entries)
    if arguments.write:
        return print_lines(str(path) for path in support.write(made, ROOT))
    if arguments.format != "text":
        print(support.FORMATS[arguments.format](made), end="")
        return 0
    if arguments.operator:
        return print_lines(support.answer(made, arguments.operator))
    return print_lines(support.families_markdown(made))


def _workflows(arguments: argparse.Namespace) -> int:
    from conformance.paths import ROOT
    from conformance.reports import workflows

    if arguments.operator or arguments.format != "text":
        raise UsageError("--workflows prints a page of markdown: leave out the operator and --format")
    if not arguments.rows:
        raise UsageError("--workflows: name the rows of all workflows, which tox -e torchao writes: --rows ROWS…")
    made = workflows.page(_report(arguments), [*workflow_promises()])
    return print_lines(map(str, workflows.write(made, ROOT)) if arguments.write else made)


def workflow_promises() -> "Iterator[Promise]":
    """Yield the claims of torchao's workflows with torchao's marks."""
    from conformance.cases.claims import backend
    from conformance.configs.torchao import MARKS, UNMARKED
    from conformance.configs.workflows import Workflow
    from conformance.reports.workflows import Promise

    for claim in backend("torchao").claims:
        assert isinstance(claim.entry, Workflow)
        source, dtype = claim.entry.source, str(claim.dtypes.input_dtype).removeprefix("torch.")
        mark = next((mark for glob, mark in MARKS.items() if fnmatchcase(source, glob)), UNMARKED)
        yield Promise(claim.pattern, claim.dtype_config, source, dtype, mark)


def use_command(arguments: argparse.Namespace) -> int:
    from conformance.paths import ROOT
    from conformance.reports import support, use

    entries = entries_of(arguments.ledger)
    findings = {entry.id: entry.finding for entry in entries}
    made = use.shares(_report(arguments)) if arguments.rows else use.recorded()
    if not made:
        raise UsageError("no run of these rows is of a layer in use: run all profiles, or --case '*/in_use@*'")
    if arguments.write:
        claims = support.claims(support.recorded(entries))
        return print_lines(str(path) for path in use.write(made, findings, claims, ROOT))
    if arguments.network:
        return print_lines(use.of_network(made, arguments.network, findings))
    return print_lines(use.places_markdown(made))


def draft_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.draft import draft, listed
    from conformance.reports.support import recorded, table
    from conformance.repro.execution import execute
    from conformance.results.reproductions import script_of

    entries = entries_of(arguments.ledger)
    report = _report(arguments) if arguments.rows else None
    made = table(report) if report else recorded(entries)
    if arguments.finding is None:
        return print_lines(listed(made))
    if arguments.finding not in made.findings:
        raise unknown("finding", arguments.finding, sorted(made.findings))
    rows = [one.row for one in report.results if one.row.known == arguments.finding] if report else []
    # of lowered programs there are least scripts, of compiled ones whole ones
    shown = [row.id for row in sorted(rows, key=lambda row: _compiles(row.engine))]
    own = [one for one in entries if one.id == arguments.finding]
    text = script_of(arguments.finding) or script_of_a_run(own, shown)
    print(draft(made, made.findings[arguments.finding], execute(text)), end="")
    return 0


def _compiles(engine: str) -> bool:
    return engine in ENGINE_TABLE and ENGINE_TABLE[engine].default_only


def script_of_a_run(entries: "Sequence[Entry]", ids: Sequence[str] = ()) -> str:
    """The script of the first run that this host can execute: of these ids, or else of those that entries list. Raises
    UsageError if it can execute none."""
    from .runs import CannotBeReproduced, find, reproduction, unavailable

    reason: str | None = "no run of it"
    for run in map(find, ids) if ids else _listed(entries):
        reason = unavailable(run)
        if reason is None:
            try:
                return reproduction(run, entries, None, least=True)
            except CannotBeReproduced as error:
                raise UsageError(f"{entries[0].id}: no stored script, and {error}") from error
    raise UsageError(f"{entries[0].id}: no stored script, and {reason}")


def _listed(entries: "Sequence[Entry]") -> "Iterator[Run]":
    """Yield the runs of registered backends that entries list."""
    from conformance.cases.claims import backend
    from conformance.cases.runs import runs
    from conformance.configs.registry import REGISTERED
    from conformance.results.ledger import backends_of

    named = {name for entry in entries for name in backends_of(entry)}
    for name in REGISTERED:
        if name in named or not named <= {*REGISTERED}:
            yield from (run for run in runs(backend(name)) if any(entry.matches(run.id) for entry in entries))


def ci_command(arguments: argparse.Namespace) -> int:
    from conformance.reports import ci

    report = _report(arguments)
    if arguments.action == "annotations":
        return print_lines(ci.annotations(report))
    print(
        ci.summary(report) if arguments.action == "summary" else json.dumps(ci.badge(report), indent=1) + "\n", end=""
    )
    return 0


def merge_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.merge import merge
    from conformance.reports.parts import missing

    parts = merge([*map(Path, arguments.rows)], Path(arguments.out), incomplete=arguments.incomplete)
    print(f"{arguments.out}: {sum(len(part.file.rows) for part in parts)} rows of {len(parts)} invocations")
    for line in missing(parts):
        print(f"incomplete: {line}", file=sys.stderr)
    return 0


def diff_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.diff import FORMATS, compare

    difference = compare(Path(arguments.before), Path(arguments.after))
    print_lines(FORMATS[arguments.format](difference))
    return 1 if difference.worse else 0


def schema_command(arguments: argparse.Namespace) -> int:
    from conformance.results import diagnostics, rows

    print(json.dumps((diagnostics if arguments.of == "details" else rows).schema(), indent=2, ensure_ascii=False))
    return 0
