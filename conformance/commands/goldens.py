"""`golden`: check, update and compare the stored goldens."""

import argparse
from typing import TYPE_CHECKING

from .arguments import add_actions, add_case, add_command, print_lines

if TYPE_CHECKING:
    from conformance.goldens.regenerate import Recomputed
    from conformance.goldens.store import Store

    from .arguments import Commands


def add(commands: "Commands") -> None:
    actions = add_actions(commands, "golden", "check, update or compare the stored goldens")
    for name, command, text in (
        ("check", check_command, "recompute goldens and list the stored ones that differ"),
        ("update", update_command, "replace stored goldens by recomputed ones and list the changes"),
    ):
        parser = add_command(actions, name, command, text)
        add_case(parser, "only goldens of the cases that match this glob over run ids")
        parser.add_argument("--golden", metavar="DIR", help="folder of goldens (default golden)")
    diff = add_command(actions, "diff", diff_command, "compare two versions of the goldens side by side")
    diff.add_argument("old", metavar="OLD", help="a folder or a git revision")
    diff.add_argument("new", metavar="NEW", nargs="?", help="a folder or a git revision (default: golden/ on disk)")
    add_case(diff, "only goldens whose name matches this glob")


def _recomputed(arguments: argparse.Namespace) -> "tuple[Store, Recomputed]":
    """Return the store, and the recomputed goldens of the selected runs of every registered backend and quantizer.

    Without `--case` these are all possible runs, including those that an invocation runs only if they are selected by name.
    """
    from pathlib import Path

    import torch

    from conformance.configs.registry import BACKENDS, QUANTIZERS
    from conformance.goldens.regenerate import recompute
    from conformance.goldens.store import Store
    from conformance.paths import GOLDEN
    from conformance.selection import Selection

    torch.set_num_threads(1)  # for models this small a second thread costs more than it gains
    selection = Selection(backends=(*BACKENDS, *QUANTIZERS), globs=arguments.case)
    return Store(Path(arguments.golden or GOLDEN)), recompute(selection.runs if arguments.case else selection.possible)


def check_command(arguments: argparse.Namespace) -> int:
    from conformance.goldens.regenerate import check

    store, recomputed = _recomputed(arguments)
    problems = [*check(store, recomputed, whole=not arguments.case)]
    print_lines(problems)
    print(f"{len(recomputed)} goldens recomputed" + (f", {len(problems)} problems" if problems else ": all as stored"))
    if problems:
        print("If the change is intended: python -m conformance golden update")
    return 1 if problems else 0


def update_command(arguments: argparse.Namespace) -> int:
    from conformance.goldens.regenerate import update

    store, recomputed = _recomputed(arguments)
    return print_lines(update(store, recomputed, whole=not arguments.case))


def diff_command(arguments: argparse.Namespace) -> int:
    from conformance.goldens.regenerate import compare, version
    from conformance.paths import GOLDEN

    with version(arguments.old) as old, version(arguments.new or str(GOLDEN)) as new:
        return print_lines(compare(old, new, arguments.case))
