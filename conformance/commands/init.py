"""`init`: the starter folder of a vendor."""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.errors import UsageError

from .arguments import add_command, add_operators, print_lines

if TYPE_CHECKING:
    from .arguments import Commands


def add(commands: "Commands") -> None:
    text = "write a tox environment, an empty ledger and a workflow for a BackendConfig of your own"
    parser = add_command(commands, "init", init_command, text)
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help="your repository (default: this folder)")
    parser.add_argument("--backend-config", metavar="MODULE:ATTRIBUTE", required=True, help="the BackendConfig")
    parser.add_argument(
        "--engine",
        action="append",
        default=[],
        metavar="NAME",
        help="an engine, or MODULE:ATTRIBUTE of your own; repeatable (default: x86)",
    )
    add_operators(parser)
    parser.add_argument(
        "--suite",
        metavar="OWNER/NAME@REF",
        default="",
        help="the repository of this suite: writes a workflow that calls it",
    )


def init_command(arguments: argparse.Namespace) -> int:
    from conformance.cases.claims import third_party
    from conformance.engines.registry import engine_name
    from conformance.starter import Starter, write

    if arguments.suite and not re.fullmatch(r"[\w.-]+/[\w.-]+@[\w./-]+", arguments.suite):
        raise UsageError(f"--suite {arguments.suite!r}: write it as OWNER/NAME@REF")
    for text in arguments.engine:
        engine_name(text)
    name = third_party(arguments.backend_config).name
    starter = Starter(
        name, arguments.backend_config, tuple(arguments.engine), tuple(arguments.operators), arguments.suite
    )
    return print_lines(map(str, write(starter, Path(arguments.folder))))
