"""Commands about rows of many nights: `store`, `trend`, `since` and `first-bad`."""

import argparse
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import Command, add_case, add_command, add_format, add_repeatable, add_rows, print_lines, with_packages

if TYPE_CHECKING:
    from conformance.reports.nights import Filter

    from .arguments import Commands

ENVIRONMENT = "history"
"""The environment of tox.ini that has the packages of these commands."""


def add(commands: "Commands") -> None:
    history = argparse.ArgumentParser(add_help=False)
    history.add_argument(
        "--history", metavar="DIR", required=True, help="folder of the history, or an address that begins with s3://"
    )

    def add_history_command(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        return add_command(commands, name, with_packages(command, ENVIRONMENT), text, [history])

    store = add_history_command("store", store_command, "add rows files to a history of many nights")
    add_rows(store)
    store.add_argument(
        "--date", type=day, metavar="DATE", help="the date of files that do not state when they finished"
    )
    text = "print the verdicts of each night of a history, and what changed since the night before"
    trend = add_history_command("trend", trend_command, text)
    text = "print since when runs are as they are, and what changed then"
    since = add_history_command("since", since_command, text)
    since.add_argument("run", metavar="ID", help="a run id, or a glob")
    text = "print which runs became bad between nights, the first bad night of each, and what changed then"
    first_bad = add_history_command("first-bad", first_bad_command, text)
    for parser in (trend, since, first_bad):
        for option, column in (("backend", "backend"), ("engine", "engine"), ("arch", "architecture")):
            add_repeatable(parser, f"--{option}", "NAME", f"only this {column}")
        add_format(parser)
    for parser in (trend, first_bad):
        add_case(parser, "only runs whose id matches")
        parser.add_argument("--from", dest="first", type=day, metavar="DATE", help="the first night")
        parser.add_argument("--to", dest="last", type=day, metavar="DATE", help="the last night")


def day(text: str) -> str:
    """A date in ISO 8601. Raises ArgumentTypeError for any other text."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no date: write YYYY-MM-DD") from error


def _filter(arguments: argparse.Namespace, globs: Iterable[str]) -> "Filter":
    from conformance.reports.nights import Filter

    first, last = (getattr(arguments, name, None) for name in ("first", "last"))
    return Filter(arguments.backend, arguments.engine, arguments.arch, [*globs], first, last)


def store_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.rows_history import store

    return print_lines(store([*map(Path, arguments.rows)], arguments.history, arguments.date))


def trend_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.trends import FORMATS, trend

    return print_lines(FORMATS[arguments.format](trend(arguments.history, _filter(arguments, arguments.case))))


def since_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.onsets import SINCE_FORMATS, since

    onsets = since(arguments.history, _filter(arguments, [arguments.run]))
    return print_lines(SINCE_FORMATS[arguments.format](onsets, Path()))


def first_bad_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.onsets import FIRST_BAD_FORMATS, first_bad

    onsets = first_bad(arguments.history, _filter(arguments, arguments.case))
    return print_lines(FIRST_BAD_FORMATS[arguments.format](onsets, Path()))
