"""The command line for timings: `python -m conformance bench compare | report | store | history | alerts | …`.

Statistics, storage and templates take a second to load, so they are imported by the command that needs them.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.errors import not_installed

Command = Callable[[argparse.Namespace], int]


def with_packages(command: Command, environment: str = "bench-report") -> Command:
    """Wrap a command so that a missing package raises a UsageError that says how to install it, or which environment of tox
    has it."""

    def run(arguments: argparse.Namespace) -> int:
        try:
            return command(arguments)
        except ModuleNotFoundError as error:
            raise not_installed(error.name, "bench", environment) from error

    return run


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the commands that compare, keep and show timings."""
    bench = commands.add_parser("bench", help="compare, keep and show timings")
    actions = bench.add_subparsers(title="actions", required=True, metavar="ACTION")

    def action(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
        parser.set_defaults(command=with_packages(command))
        return parser

    compare = action("compare", compare_command, "compare latencies; exit status 1 if any case is slower")
    compare.add_argument(
        "base", metavar="BASE", help="a file of timings; alone, its two builds are compared (--against)"
    )
    compare.add_argument("new", metavar="NEW", nargs="?", help="a later file of timings")
    compare.add_argument("--format", choices=("text", "markdown", "json"), default="text", help="default: text")
    compare.add_argument("--other-machines", action="store_true", help="compare even if the machines differ")
    compare.add_argument("-o", dest="out", metavar="DIR", help="also write a page of HTML into this folder")
    report = action("report", report_command, "write timings as a page of HTML that opens from disk")
    report.add_argument("timings", metavar="TIMINGS", nargs="+", help="files of timings")
    report.add_argument("--base", metavar="BASE", help="earlier timings to compare the first file with")
    report.add_argument("--history", metavar="DIR", help="folder of the history")
    report.add_argument("-o", dest="out", metavar="DIR", required=True, help="the folder")
    speed = action("speed", speed_command, "print the speed-up of operators and networks over float, as markdown")
    speed.add_argument("timings", metavar="TIMINGS", nargs="+", help="files of timings")
    speed.add_argument("-o", dest="out", metavar="FILE", help="write it to this file instead, such as docs/latency.md")
    store = action("store", store_command, "add timings to a history")
    store.add_argument("timings", metavar="TIMINGS", nargs="+", help="files of timings")
    history = action(
        "history", history_command, "print the history of a case, with versions and commits at each change"
    )
    history.add_argument("case", metavar="CASE", help="a case, or a glob")
    history.add_argument("-o", dest="out", metavar="DIR", help="also plot it as a page of HTML in this folder")
    alerts = action("alerts", alerts_command, "print recent lasting changes as markdown; the exit status is 0")
    for parser in (store, history, alerts):
        parser.add_argument("--history", dest="folder", metavar="DIR", required=True, help="folder of the history")
    text = "write timings as pytest-benchmark's JSON"
    export = action("export", export_command, text)
    export.add_argument("timings", metavar="TIMINGS", help="a file of timings")
    restore = action(
        "import", import_command, "write the timings that a JSON file of pytest-benchmark was exported from"
    )
    restore.add_argument("json", metavar="JSON", help="a file written by --benchmark-json or `bench export`")
    for parser in (export, restore):
        parser.add_argument("-o", dest="out", metavar="FILE", required=True, help="output file")


def compare_command(arguments: argparse.Namespace) -> int:
    from conformance.bench.results import read

    from .latency_html import write
    from .regression import FORMATS, compare

    files = [read(Path(path)) for path in (arguments.base, arguments.new) if path]
    regression = compare(*files, other_machines=arguments.other_machines)
    print(*FORMATS[arguments.format](regression), sep="\n")
    if arguments.out:
        write(files[-1:], Path(arguments.out), regression)
    return int(regression.worse)


def report_command(arguments: argparse.Namespace) -> int:
    from conformance.bench.results import read

    from .history import alerts, load
    from .latency_html import write
    from .regression import compare

    files = [read(Path(path)) for path in arguments.timings]
    regression = compare(read(Path(arguments.base)), files[0]) if arguments.base else None
    series = load(Path(arguments.history)) if arguments.history else []
    print(write(files, Path(arguments.out), regression, series, alerts(series)))
    return 0


def speed_command(arguments: argparse.Namespace) -> int:
    from conformance.bench.results import read
    from conformance.results.jsonl import replacing

    from .speedup import document

    text = "\n".join(document([read(Path(path)) for path in arguments.timings]))
    if arguments.out is None:
        print(text)
        return 0
    with replacing(Path(arguments.out), "-o") as beside:
        beside.write_text(text + "\n", encoding="utf-8")
    return 0


def store_command(arguments: argparse.Namespace) -> int:
    from conformance.bench.results import read

    from .history import store

    for path in arguments.timings:
        print(store(read(Path(path)), Path(arguments.folder)))
    return 0


def history_command(arguments: argparse.Namespace) -> int:
    from .history import change_points, lines, load
    from .latency_html import write

    every_series = load(Path(arguments.folder), arguments.case)
    points = [point for series in every_series for point in change_points(series)]
    for line in lines(every_series, points, Path()):
        print(line)
    if arguments.out:
        print(write([], Path(arguments.out), None, every_series, points))
    return 0


def alerts_command(arguments: argparse.Namespace) -> int:
    from .history import alerts, as_markdown, load

    for line in as_markdown(alerts(load(Path(arguments.folder))), Path()):
        print(line)
    return 0


def export_command(arguments: argparse.Namespace) -> int:
    from conformance.bench.results import read

    from .exchange import save

    save(read(Path(arguments.timings)), Path(arguments.out))
    return 0


def import_command(arguments: argparse.Namespace) -> int:
    from .exchange import imported

    imported(Path(arguments.json), Path(arguments.out))
    return 0
