"""`lint`: find mistakes of a declaration without running a kernel."""

import argparse
from typing import TYPE_CHECKING

from .arguments import add_command

if TYPE_CHECKING:
    from .arguments import Commands


def add(commands: "Commands") -> None:
    lint = add_command(commands, "lint", lint_command, "find mistakes of a BackendConfig without running a kernel")
    lint.add_argument(
        "declaration",
        metavar="MODULE:ATTRIBUTE",
        nargs="*",
        help="a BackendConfig, a list of BackendPatternConfigs, or a callable that returns one (default: the backends' own)",
    )
    lint.add_argument("--rules", action="store_true", help="print every rule with its reason and an example")


def lint_command(arguments: argparse.Namespace) -> int:
    from conformance.cases.claims import backend
    from conformance.configs.registry import BACKENDS
    from conformance.lint import linter

    if arguments.rules:
        print("\n".join(linter.described()))
        return 0
    if arguments.declaration:
        declarations = [linter.named(path) for path in arguments.declaration]
    else:
        declarations = [linter.declared(name, backend(name).config.configs) for name in BACKENDS]
    failed = False
    for declaration in declarations:
        problems = linter.lint(declaration)
        for problem in problems:
            print(f"{declaration.name}: {problem.rule.level} {problem.rule.id}: {problem.where}: {problem.text}")
        errors = sum(problem.rule.level == "error" for problem in problems)
        print(
            f"{declaration.name}: {len(declaration.entries)} entries, {errors} errors, {len(problems) - errors} warnings"
        )
        failed |= errors > 0
    return int(failed)
