"""The parser, and the arguments that several commands take."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from conformance.errors import UsageError
from conformance.suggestions import unknown

if TYPE_CHECKING:
    from conformance.results.known import Entry

    Commands = argparse._SubParsersAction[Any]

Command = Callable[[argparse.Namespace], int]
"""Runs a command and returns its exit status."""


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError for wrong arguments; an unknown command or choice gets the nearest ones."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            raise unknown(name.lower(), str(value), map(str, action.choices))


def add_command(
    commands: "Commands", name: str, command: Command, text: str, parents: Sequence[argparse.ArgumentParser] = ()
) -> argparse.ArgumentParser:
    """Add a command with its help text, and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, parents=parents)
    parser.set_defaults(command=command)
    return parser


def add_actions(commands: "Commands", name: str, text: str) -> "Commands":
    """Add a command that has actions, and return what the actions are added to."""
    actions: Commands = commands.add_parser(name, help=text, description=text).add_subparsers(
        title="actions", required=True, metavar="ACTION"
    )
    return actions


def add_own(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the options that name what is not the suite's: a config or quantizer, engines and operators."""
    config = parser.add_mutually_exclusive_group()
    add_backend_config(config, text)
    config.add_argument("--quantizer", metavar="MODULE:ATTRIBUTE", help=f"{text}, a QuantizerConfig")
    add_engine(parser)
    add_operators(parser)


def own_options(arguments: argparse.Namespace) -> list[str]:
    """The options that name what is not the suite's, as a command got them: names and values in turn."""
    named = {
        "--backend-config": [arguments.backend_config],
        "--quantizer": [arguments.quantizer],
        "--engine": arguments.engine,
        "--operators": arguments.operators,
    }
    return [word for option, values in named.items() for value in values if value for word in (option, value)]


def add_backend_config(parser: "argparse.ArgumentParser | argparse._MutuallyExclusiveGroup", text: str) -> None:
    parser.add_argument("--backend-config", metavar="MODULE:ATTRIBUTE", help=text)


def add_operators(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--operators",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module with operators of your own; repeatable",
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        action="append",
        default=[],
        metavar="MODULE:ATTRIBUTE",
        help="an engine of your own, which ids then name; repeatable",
    )


def add_case(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--case", action="append", default=[], metavar="GLOB", help=f"{text}; repeatable")


def add_ledger(parser: argparse.ArgumentParser, note: str = "") -> None:
    parser.add_argument(
        "--ledger",
        action="append",
        metavar="DIR",
        help=f"folder of known deviations (default conformance/known); repeatable{note}",
    )


def add_rows(parser: argparse.ArgumentParser, text: str = "rows files, merged or not") -> None:
    parser.add_argument("rows", metavar="ROWS", nargs="+", help=text)


def entries_of(folders: Sequence[str] | None) -> "list[Entry]":
    """The entries of ledgers, the suite's own by default."""
    from conformance.paths import KNOWN
    from conformance.results.ledger_file import load

    paths = [Path(folder) for folder in folders] if folders else [KNOWN]
    return [entry for path in paths for entry in load(path)]
