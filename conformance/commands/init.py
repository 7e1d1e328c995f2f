"""`init`: the starter folder of a vendor."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

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
        help="the repository of this suite and a revision, for which a workflow is written too, or the file of its wheel "
        "(default: what is installed here)",
    )


def init_command(arguments: argparse.Namespace) -> int:
    from conformance.cases.claims import third_party
    from conformance.engines.registry import engine_name
    from conformance.starter import Starter, installed_from, requirement_of, write

    requirement, suite = requirement_of(arguments.suite) if arguments.suite else (installed_from(), "")
    for text in arguments.engine:
        engine_name(text)
    name = third_party(arguments.backend_config).name
    starter = Starter(
        name, arguments.backend_config, tuple(arguments.engine), requirement, tuple(arguments.operators), suite
    )
    return print_lines(map(str, write(starter, Path(arguments.folder))))
