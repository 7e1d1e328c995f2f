"""The parser, and the arguments that several commands take."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from conformance.errors import UsageError, not_installed
from conformance.host.cpu import ISA_LIMITS
from conformance.suggestions import unknown

if TYPE_CHECKING:
    from conformance.cases.claims import BackendClaims
    from conformance.results.known import Entry

    Commands = argparse._SubParsersAction[Any]
    Options = argparse.ArgumentParser | argparse._MutuallyExclusiveGroup

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
    add_repeatable(parser, "--engine", "MODULE:ATTRIBUTE", "an engine of your own, which ids then name")
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


def add_backend_config(parser: "Options", text: str) -> None:
    parser.add_argument("--backend-config", metavar="MODULE:ATTRIBUTE", help=text)


def add_repeatable(parser: "Options", option: str, metavar: str, text: str) -> None:
    """Add an option that may be given several times, and has a list of values."""
    parser.add_argument(option, action="append", default=[], metavar=metavar, help=f"{text}; repeatable")


def add_operators(parser: argparse.ArgumentParser) -> None:
    add_repeatable(parser, "--operators", "MODULE", "a module with operators of your own")


def add_case(parser: argparse.ArgumentParser, text: str) -> None:
    add_repeatable(parser, "--case", "GLOB", text)


def add_isa(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--isa", metavar="NAME", help=f"limit the instruction set: {', '.join(ISA_LIMITS)}")


def add_format(parser: argparse.ArgumentParser, *further: str) -> None:
    formats = ("text", "markdown", "json", *further)
    parser.add_argument("--format", choices=formats, default="text", help="default: text")


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


def module_path(option: str, name: str, example: str) -> Path:
    """The path of a module that an option names. Raises UsageError for a file that cannot be imported."""
    path = Path(name)
    if not (path.suffix == ".py" and path.stem.isidentifier()):
        raise UsageError(f"{option} {name!r}: name a file of Python that can be imported, such as {example}")
    return path


def of_models(claims: "BackendClaims") -> "BackendClaims":
    """Return these claims. Raises UsageError if they are about modules that are quantized in place."""
    from conformance.configs.workflows import WorkflowConfig

    if isinstance(claims.config, WorkflowConfig):
        raise UsageError(
            f"{claims.name} quantizes modules in place, and this command needs a config that converts models: run "
            "`python -m pytest conformance` with it"
        )
    return claims


def given(arguments: argparse.Namespace, options: Sequence[str]) -> str | None:
    """The first of some options that has a value, as users write it, or None."""
    return next((f"--{name.replace('_', '-')}" for name in options if getattr(arguments, name)), None)


def print_lines(lines: Iterable[str]) -> int:
    """Print lines, each as soon as it is there, and return the exit status of a command that succeeds."""
    for line in lines:
        print(line)
    return 0


def with_packages(command: Command, environment: str) -> Command:
    """Wrap a command so that a missing package raises a UsageError that says how to install it, or which environment of tox
    has it."""

    def run(arguments: argparse.Namespace) -> int:
        try:
            return command(arguments)
        except ModuleNotFoundError as error:
            raise not_installed(error.name, "bench", environment) from error

    return run
