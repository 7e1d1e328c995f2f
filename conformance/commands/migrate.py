"""`migrate`: what PT2E keeps of claims, of one operator, and of a network."""

import argparse
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.configs.engines import ENGINES, SUCCESSORS, backend_of
from conformance.errors import UsageError
from conformance.suggestions import unknown

from .arguments import add_command, add_ledger, add_repeatable, entries_of, given, print_lines
from .audits import add_inputs, clear_line, reporter, write_json

if TYPE_CHECKING:
    from conformance.audit.isolated import Way

    from .arguments import Commands

PACKAGES = ("torch", "torchao", "executorch")
"""Packages whose versions a file of followed claims states."""

DEFAULT_ENGINES = ("x86", "qnnpack")
"""Engines of FX that a network is taken through if nothing is named."""


def add(commands: "Commands") -> None:
    text = (
        "print what PT2E keeps of the claims of an operator, take a network through FX and PT2E, or follow claims through "
        "both; for a network the exit status is 1 if anything is wrong through PT2E but quantization itself"
    )
    migrate = add_command(commands, "migrate", migrate_command, text)
    migrate.add_argument(
        "what", metavar="OPERATOR | MODULE:CALLABLE", nargs="?",
        help="an operator of a pattern, such as nn.Conv2d, or what returns a float model, in eval mode",
    )  # fmt: skip
    add_inputs(migrate)
    add_repeatable(
        migrate, "--engine", "NAME", "engine of FX for a network (default: whose users move to the quantizers)"
    )
    text = (
        "quantizer of PT2E for a network, and its engine (default: those of the engines' successors that are installed)"
    )
    add_repeatable(migrate, "--quantizer", "NAME[@ENGINE]", text)
    migrate.add_argument("--json", metavar="FILE", help="write the audits of a network as JSON")
    migrate.add_argument("--claims", metavar="FILE", help="the file to read (default: that of this revision)")
    migrate.add_argument("--follow", metavar="FILE", help="follow every claim on this machine and write the file")
    add_repeatable(migrate, "--backend", "NAME", "follow the claims of this backend")
    migrate.add_argument(
        "--write", action="store_true", help="write the file of this revision and docs/migration.md from --claims"
    )
    add_ledger(migrate)


def migrate_command(arguments: argparse.Namespace) -> int:
    if arguments.follow:
        return _follow(Path(arguments.follow), arguments.backend)
    if not (arguments.write or arguments.what):
        raise UsageError(
            "migrate: name an operator, such as nn.Conv2d, or a network, such as mypackage.models:small, or --follow FILE"
        )
    if arguments.what and ":" in arguments.what:
        return _network(arguments)
    if option := given(arguments, ("engine", "quantizer", "inputs", "shape", "json")):
        raise UsageError(f"{option} is for a network: name one as module:callable in place of {arguments.what}")
    from conformance.paths import ROOT
    from conformance.reports import migration
    from conformance.results.migrations import read

    header, items = read(Path(arguments.claims) if arguments.claims else migration.RECORDED)
    if arguments.write:
        return print_lines(str(path) for path in migration.record(header, items, ROOT))
    return print_lines(migration.answer(items, arguments.what))


def _network(arguments: argparse.Namespace) -> int:
    import torch

    torch.set_num_threads(1)  # children have no threads of a pool
    from conformance.audit.auditing import Fx, Settings, host
    from conformance.audit.causes import explained
    from conformance.audit.network import loaded
    from conformance.audit.quantizers import quantization
    from conformance.engines.availability import probe
    from conformance.reports.audit_text import beside

    pairs = [(name, engine or None) for name, _, engine in (one.partition("@") for one in arguments.quantizer)]
    engines = arguments.engine or [_predecessor(name) for name, _ in pairs]
    engines = engines or [name for name in DEFAULT_ENGINES if not probe(name)]
    settings = Settings(reduce=False)
    through_fx: list[Way] = [Fx(name, settings) for name in dict.fromkeys(engines)]
    through_pt2e: list[Way] = [
        quantization(name, engine, reduce=False) for name, engine in pairs or _successors(engines)
    ]
    entries = entries_of(arguments.ledger)
    subject = loaded(arguments.what, arguments.inputs, arguments.shape)
    audits = [explained(way.audit(subject, reporter()), entries, host()) for way in through_fx + through_pt2e]
    write_json(audits, arguments.json)
    clear_line()
    print_lines(beside(audits))
    return int(not all(one.holds for one in audits[len(through_fx) :]))


def _predecessor(quantizer: str) -> str:
    """The engine of FX whose users move to a quantizer; the first default for one of the user's own."""
    return next((name for name in DEFAULT_ENGINES if SUCCESSORS[backend_of(name)][0] == quantizer), DEFAULT_ENGINES[0])


def _successors(engines: Sequence[str]) -> list[tuple[str, None]]:
    """The quantizers that users of engines move to, of those that are installed. Raises UsageError if none is."""
    from conformance.audit.auditing import claims_for
    from conformance.cases.claims import backend
    from conformance.models import pt2e

    names = dict.fromkeys(SUCCESSORS[claims_for(engine).name][0] for engine in engines)
    missing = {name: pt2e.unavailable(pt2e.spec_of(backend(name))) for name in names}
    for name, reason in missing.items():
        if reason:
            print(f"quantizer {name} is left out: {reason}", file=sys.stderr)
    if all(missing.values()):
        raise UsageError(f"migrate: no quantizer is available here: {next(filter(None, missing.values()))}")
    return [(name, None) for name, reason in missing.items() if not reason]


def _follow(path: Path, backends: list[str]) -> int:
    from conformance.host.environment import version_of
    from conformance.migration.following import followed, jobs
    from conformance.progress import progress
    from conformance.results.migrations import write

    for name in backends:
        if name not in ENGINES:
            raise unknown("backend", name, ENGINES)
    chosen = [*jobs(tuple(backends) or tuple(ENGINES))]
    items = [*progress(followed(chosen), "claims", total=len(chosen))]
    write(path, {"platform": platform.machine(), **{name: version_of(name) for name in PACKAGES}}, items)
    print(f"{path}: {len({one.claim for one in items})} claims, {len(items)} with each engine")
    return 0
