"""`migrate`: what a quantizer of PT2E keeps of what a backend config promised through FX."""

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.configs.engines import ENGINES
from conformance.errors import UsageError
from conformance.suggestions import unknown

from .arguments import add_command

if TYPE_CHECKING:
    from .arguments import Commands

PACKAGES = ("torch", "torchao", "executorch")


def add(commands: "Commands") -> None:
    text = "print what PT2E keeps of the claims of an operator, or follow claims through FX and PT2E"
    migrate = add_command(commands, "migrate", migrate_command, text)
    migrate.add_argument("operator", metavar="OPERATOR", nargs="?", help="an operator of a pattern, such as nn.Conv2d")
    migrate.add_argument("--claims", metavar="FILE", help="the file to read (default: that of this revision)")
    migrate.add_argument("--follow", metavar="FILE", help="follow every claim on this machine and write the file")
    migrate.add_argument(
        "--backend", action="append", default=[], metavar="NAME", help="follow the claims of this backend; repeatable"
    )
    migrate.add_argument(
        "--write", action="store_true", help="write the file of this revision and docs/migration.md from --claims"
    )


def migrate_command(arguments: argparse.Namespace) -> int:
    if arguments.follow:
        return _follow(Path(arguments.follow), arguments.backend)
    if not (arguments.write or arguments.operator):
        raise UsageError("migrate: name an operator, such as nn.Conv2d, or --follow FILE")
    from conformance.paths import ROOT
    from conformance.reports import migration
    from conformance.results.migrations import read

    header, items = read(Path(arguments.claims) if arguments.claims else migration.RECORDED)
    if arguments.write:
        lines = [str(path) for path in migration.record(header, items, ROOT)]
    else:
        lines = [*migration.answer(items, arguments.operator)]
    print("\n".join(lines))
    return 0


def _follow(path: Path, backends: list[str]) -> int:
    from conformance.migration.following import followed, jobs
    from conformance.progress import progress
    from conformance.results.migrations import write

    for name in backends:
        if name not in ENGINES:
            raise unknown("backend", name, ENGINES)
    chosen = [*jobs(tuple(backends) or tuple(ENGINES))]
    items = [*progress(followed(chosen), "claims", total=len(chosen))]
    write(path, {"platform": platform.machine(), **{name: _version(name) for name in PACKAGES}}, items)
    print(f"{path}: {len({one.claim for one in items})} claims, {len(items)} with each engine")
    return 0


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
