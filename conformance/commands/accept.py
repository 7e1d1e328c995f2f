"""`accept`: new deviations written into a ledger, with reproductions that were run."""

import argparse
import fnmatch
import os
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.errors import UsageError

from .arguments import add_case, add_command, add_own, add_rows, own_options

if TYPE_CHECKING:
    from conformance.reports.load import Result
    from conformance.results.reproductions import Reproduced
    from conformance.results.rows import Row

    from .arguments import Commands


def add(commands: "Commands") -> None:
    text = "write new deviations of rows files into a ledger as one finding, each with its reproduction, which is run first"
    parser = add_command(commands, "accept", accept_command, text)
    add_rows(parser)
    parser.add_argument("--finding", metavar="ID", required=True, help="the id of the finding, new or not")
    parser.add_argument("--ledger", metavar="DIR", required=True, help="the folder of known deviations to write into")
    parser.add_argument("--extend", action="store_true", help="have a new ledger extend that of the suite")
    parser.add_argument(
        "--title", help="what is wrong, in a sentence: the deviations are then one finding, and else one for each kind"
    )
    parser.add_argument(
        "--reason", help="what the engine does instead, in a sentence (default: what the plainest deviation says)"
    )
    parser.add_argument("--upstream", help="owner/repo#number of an issue, if it is reported")
    add_case(parser, "only deviations whose run id matches this glob")
    add_own(parser, "the BackendConfig of the rows, if their header does not name it")


def accept_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.load import Report
    from conformance.results.acceptance import add as add_to_ledger
    from conformance.results.acceptance import causes, described, places
    from conformance.results.jsonl import replacing
    from conformance.results.ledger_file import extends, own
    from conformance.results.reproductions import record

    if not re.fullmatch(r"[\w.-]+", arguments.finding):
        raise UsageError(f"--finding {arguments.finding!r}: name it with letters, digits and _.- alone")
    ledger = Path(arguments.ledger)
    ledger.mkdir(parents=True, exist_ok=True)
    if arguments.extend and not extends(ledger):
        with replacing(ledger / "suite.toml", "--ledger") as beside:
            beside.write_text('extends = "suite"\n', encoding="utf-8")
    results = Report([*map(Path, arguments.rows)], [ledger]).results
    new = {one.row.id: one for one in results if one.new and one.row.failed and _wanted(one.row, arguments.case)}
    if not new:
        raise UsageError(
            f"{' '.join(arguments.rows)}: no new deviation" + (" that --case matches" if arguments.case else "")
        )
    reproduced = _reproduced([*new.values()], arguments)
    accepted = [new[run_id].row for run_id in reproduced]
    known = {entry.id for entry in own(ledger)}
    # somebody who names a finding, or says what is wrong, knows that it is one
    separate = [accepted] if arguments.title or arguments.finding in known else causes(accepted)
    for number, rows in enumerate(filter(None, separate), 1):
        name = arguments.finding if number == 1 else f"{arguments.finding}-{number}"
        words = described(rows)
        words |= {field: text for field in ("title", "reason") if (text := getattr(arguments, field))}
        scripts = ledger / "scripts"
        first = 1 + sum(script.stem.rpartition("-")[0] == name for script in scripts.glob("*.py"))
        record({f"{name}-{place}": reproduced[row.id].script for place, row in enumerate(rows, first)}, scripts)
        values = {"id": name, **words}
        if arguments.upstream:
            values["upstream"] = arguments.upstream
        path = add_to_ledger(ledger, rows[0].backend, values, places(rows, [one.row for one in results]))
        print(f"{path}: {name}: {len(rows)} runs, whose reproductions are in {scripts}")
    print(f"{len(accepted)} of {len(new)} deviations reproduced and accepted")
    return 0 if len(accepted) == len(new) else 1


def _wanted(row: "Row", globs: Sequence[str]) -> bool:
    return not globs or any(fnmatch.fnmatchcase(row.id, glob) for glob in globs)


def _reproduced(results: "Sequence[Result]", arguments: argparse.Namespace) -> "dict[str, Reproduced]":
    """The reproductions of results that show their deviation here, by run id. The reason of each other one is printed."""
    from conformance.host.cpu import ISA_LIMITS, isa
    from conformance.progress import progress
    from conformance.repro.execution import execute
    from conformance.repro.script import script

    from .runs import find_with

    given = own_options(arguments)

    def reproduce(text: str) -> "Reproduced | UsageError":
        try:
            return execute(text, importing=bool(given or any(result.options for result in results)))
        except UsageError as error:
            return error

    texts = {}
    for result in results:
        limit = result.column.environment.isa
        limited = limit if limit in ISA_LIMITS and limit != isa(None) else None
        run = find_with(result.row.id, given or result.options)
        texts[result.row.id] = script(run, result.row, None, isa=limited)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = progress(pool.map(reproduce, texts.values()), "reproduced", len(texts))
        outcomes = dict(zip(texts, found, strict=True))
    for run_id, outcome in outcomes.items():
        if isinstance(outcome, UsageError):
            print(f"{run_id}: not accepted: {outcome}", file=sys.stderr)
    return {run_id: outcome for run_id, outcome in outcomes.items() if not isinstance(outcome, UsageError)}
