"""`bench`: timings compared, kept and shown: compare, report, speed, store, history, alerts, export and import.

Statistics, storage and templates take a second to load, so they are imported by the command that needs them.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import Command, add_actions, add_command, add_format, print_lines, with_packages

if TYPE_CHECKING:
    from conformance.bench.results import TimingsFile

    from .arguments import Commands


def add(commands: "Commands") -> None:
    actions = add_actions(commands, "bench", "compare, keep and show timings")

    def action(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        return add_command(actions, name, with_packages(command, "bench-report"), text)

    compare = action("compare", compare_command, "compare latencies; exit status 1 if any case is slower")
    compare.add_argument(
        "base", metavar="BASE", help="a file of timings; alone, its two builds are compared (--against)"
    )
    compare.add_argument("new", metavar="NEW", nargs="?", help="a later file of timings")
    add_format(compare)
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
    text = "print the history of a case, with versions and commits at each change"
    history = action("history", history_command, text)
    history.add_argument("case", metavar="CASE", help="a case, or a glob")
    history.add_argument("-o", dest="out", metavar="DIR", help="also plot it as a page of HTML in this folder")
    alerts = action("alerts", alerts_command, "print recent lasting changes as markdown; the exit status is 0")
    for parser in (store, history, alerts):
        parser.add_argument("--history", dest="folder", metavar="DIR", required=True, help="folder of the history")
    export = action("export", export_command, "write timings as pytest-benchmark's JSON")
    export.add_argument("timings", metavar="TIMINGS", help="a file of timings")
    text = "write the timings that a JSON file of pytest-benchmark was exported from"
    restore = action("import", import_command, text)
    restore.add_argument("json", metavar="JSON", help="a file written by --benchmark-json or `bench export`")
    for parser in (export, restore):
        parser.add_argument("-o", dest="out", metavar="FILE", required=True, help="output file")


def _read(path: str) -> "TimingsFile":
    from conformance.bench.results import read

    return read(Path(path))


def compare_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.latency_html import write
    from conformance.reports.regression import FORMATS, compare

    files = [_read(path) for path in (arguments.base, arguments.new) if path]
    regression = compare(*files, other_machines=arguments.other_machines)
    print(*FORMATS[arguments.format](regression), sep="\n")
    if arguments.out:
        write(files[-1:], Path(arguments.out), regression)
    return int(regression.worse)


def report_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.history import alerts, load
    from conformance.reports.latency_html import write
    from conformance.reports.regression import compare

    files = [*map(_read, arguments.timings)]
    regression = compare(_read(arguments.base), files[0]) if arguments.base else None
    series = load(Path(arguments.history)) if arguments.history else []
    print(write(files, Path(arguments.out), regression, series, alerts(series)))
    return 0


def speed_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.speedup import document
    from conformance.results.jsonl import replacing

    lines = document([*map(_read, arguments.timings)])
    if arguments.out is None:
        return print_lines(lines)
    with replacing(Path(arguments.out), "-o") as beside:
        beside.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def store_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.history import store

    return print_lines(str(store(_read(path), Path(arguments.folder))) for path in arguments.timings)


def history_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.history import change_points, lines, load
    from conformance.reports.latency_html import write

    every_series = load(Path(arguments.folder), arguments.case)
    points = [point for series in every_series for point in change_points(series)]
    print_lines(lines(every_series, points, Path()))
    if arguments.out:
        print(write([], Path(arguments.out), None, every_series, points))
    return 0


def alerts_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.history import alerts, as_markdown, load

    return print_lines(as_markdown(alerts(load(Path(arguments.folder))), Path()))


def export_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.exchange import save

    save(_read(arguments.timings), Path(arguments.out))
    return 0


def import_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.exchange import imported

    imported(Path(arguments.json), Path(arguments.out))
    return 0
