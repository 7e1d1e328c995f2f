"""`networks`: audits of the corpus, and the tables made of them."""

import argparse
import fnmatch
import gzip
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.errors import UsageError
from conformance.host.isa import limit_isa

from .arguments import add_actions, add_command, add_isa, add_ledger, add_repeatable, entries_of, print_lines

if TYPE_CHECKING:
    from conformance.audit.isolated import Way
    from conformance.results.audits import Audit

    from .arguments import Commands

ENGINES = ("x86", "fbgemm", "onednn", "qnnpack")


def add(commands: "Commands") -> None:
    actions = add_actions(commands, "networks", "audit public networks, and print tables of the audits")
    run = add_command(
        actions, "run", run_command, "audit networks; the exit status is 1 if the ledger does not explain all"
    )
    add_repeatable(run, "--engine", "NAME", "default: every native engine, or the first one of the quantizer")
    run.add_argument("--quantizer", metavar="NAME", help="take them through PT2E in place of FX, as `audit` does")
    add_repeatable(
        run, "--network", "GLOB", "default: all with random weights; those with trained ones end in _trained"
    )
    run.add_argument("--results", metavar="PATH", help="the rows file (default reports/out/networks-<arch>.jsonl)")
    run.add_argument("--audits", metavar="PATH", help="also write the audits, as compressed JSON lines")
    run.add_argument(
        "-n", dest="workers", type=int, default=0, metavar="N", help="processes (default: one for each CPU)"
    )
    text = "train those with random weights so long before, for a minute or two: their output then tells more than rounding"
    run.add_argument("--train", type=_steps, default=0, metavar="STEPS", help=text)
    run.add_argument("--reduce", action="store_true", help="reduce blamed layers to scripts, which --audits keeps")
    add_isa(run)
    add_ledger(run)
    for name, command, text in (
        ("table", table_command, "print what each engine loses, causes, and operators in float, as markdown"),
        ("layers", layers_command, "print the layers in use, as JSON lines"),
        ("foretold", foretold_command, "predict the networks of audits, and print what was foretold, as markdown"),
    ):
        parser = add_command(actions, name, command, text)
        parser.add_argument("audits", nargs="+", metavar="AUDITS", help="a file of `networks run --audits`")
    add_command(actions, "list", list_command, "list the networks of the corpus")
    add_command(
        actions,
        "representatives",
        representatives_command,
        "print the layers in use that engines which lower ahead of time are tried with, as JSON lines",
    )
    add_command(actions, "shrunk", shrunk_command, "print every layer in use, shrunk, as JSON lines")


def _steps(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of steps: write one such as 120")
    return int(text)


def list_command(arguments: argparse.Namespace) -> int:
    from conformance.networks.zoo import every

    return print_lines(f"{network.name:30} {network.task:16} {network.package}" for network in every().values())


def selected(globs: Sequence[str]) -> list[str]:
    """The names of the networks that match a glob; without one all but those with trained weights, whose packages are others.
    Raises UsageError for a glob that matches none."""
    from conformance.networks.zoo import NETWORKS, every, network

    for glob in globs:
        if not fnmatch.filter(every(), glob):
            network(glob)
    return (
        [name for name in every() if any(fnmatch.fnmatchcase(name, glob) for glob in globs)] if globs else [*NETWORKS]
    )


def run_command(arguments: argparse.Namespace) -> int:
    if arguments.isa:
        limit_isa(arguments.isa)
    from conformance.audit.auditing import Fx, Settings, host
    from conformance.audit.causes import explained
    from conformance.audit.corpus import audited
    from conformance.audit.quantizers import quantization
    from conformance.reports.audit_text import summary_line
    from conformance.results.networks import rows
    from conformance.results.rows import Writer

    started = time.perf_counter()
    settings = Settings(reduce=arguments.reduce)
    ways: Sequence[Way]
    if arguments.quantizer:
        asked = dict.fromkeys(arguments.engine or [None])
        ways = [quantization(arguments.quantizer, name, reduce=arguments.reduce) for name in asked]
    else:
        ways = [Fx(name, settings) for name in dict.fromkeys(arguments.engine or ENGINES)]
    engines = [way.engine for way in ways]
    entries, here = entries_of(arguments.ledger), host(arguments.isa)
    names = selected(arguments.network)
    path = arguments.results or f"reports/out/networks-{platform.machine()}.jsonl"
    writer = Writer(Path(path), _header(arguments, engines))
    kept: list[Audit] = []
    for audits in audited(names, ways, arguments.workers or os.cpu_count() or 1, arguments.train):
        for audit in audits:
            one = explained(audit, entries, here)
            for row in rows(one):
                writer.add(row)
            kept.append(one)
            print(summary_line(one), flush=True)
    writer.finish({"seconds": round(time.perf_counter() - started, 1)})
    if arguments.audits:
        _write_audits(Path(arguments.audits), sorted(kept, key=lambda one: (one.network, engines.index(one.engine))))
    new = [row for row in writer.rows.values() if row.verdict.fails and row.known is None]
    print(
        f"{len(kept)} audits of {len(names)} networks, {len(writer.rows)} rows in {writer.path}, {len(new)} new deviations"
    )
    for row in new[:20]:
        print(f"{row.id}: {row.detail}")
    return int(bool(new))


def _header(arguments: argparse.Namespace, engines: Sequence[str]) -> dict[str, object]:
    from conformance.engines.availability import probe
    from conformance.host.environment import environment

    reasons = {name: probe(name) or "available" for name in engines}
    selection = [f"networks/*:{glob}" for glob in arguments.network]
    return {**environment(arguments.isa), "engines": reasons, "backends": ["networks"], "selection": selection}


def _write_audits(path: Path, audits: "Sequence[Audit]") -> None:
    from conformance.results.audits import to_json
    from conformance.results.jsonl import replacing

    with replacing(path, "--audits") as beside, gzip.open(beside, "wt", encoding="utf-8") as file:
        for audit in audits:
            file.write(json.dumps(to_json(audit), separators=(",", ":")) + "\n")


def _audits(paths: Sequence[str]) -> "list[Audit]":
    """The audits of files. Raises UsageError naming the file, and the line that is damaged."""
    from conformance.results.audits import from_json
    from conformance.results.jsonl import opened, parse

    found = []
    for path in map(Path, paths):
        number = 0
        try:
            with opened(path), gzip.open(path, "rt", encoding="utf-8") as file:
                for number, line in enumerate(file, 1):  # noqa: B007  (the last line that could be read)
                    found.append(from_json(parse(line)))
        except (ValueError, TypeError, EOFError, gzip.BadGzipFile) as error:
            raise UsageError(
                f"{path}:{number}: not a file of audits, or damaged: {error}; run `networks run --audits` again"
            ) from error
    return found


def table_command(arguments: argparse.Namespace) -> int:
    from conformance.reports.networks import document

    reasons = {entry.id: entry.finding.reason for entry in entries_of(None)}
    return print_lines(document(_audits(arguments.audits), reasons))


def foretold_command(arguments: argparse.Namespace) -> int:
    import torch

    torch.set_num_threads(1)
    from conformance.audit.auditing import host
    from conformance.audit.causes import explained
    from conformance.audit.network import Network
    from conformance.networks.zoo import network
    from conformance.prediction.predicting import Predicting
    from conformance.reports.foretold import document

    entries, here = entries_of(None), host()
    audits = sorted(_audits(arguments.audits), key=lambda one: one.network)
    pairs = []
    for name, ones in itertools.groupby(audits, lambda one: one.network):
        of_corpus = network(name)
        subject = Network(name, of_corpus.build(), tuple(of_corpus.batches()))
        for one in ones:
            pairs.append((Predicting(one.engine, here, entries).predict(subject), explained(one, entries, here)))
            print(f"{name} on {one.engine}", file=sys.stderr)
    return print_lines(document(pairs))


def layers_command(arguments: argparse.Namespace) -> int:
    from conformance.results.in_use import layers_in_use, lines

    return print_lines(lines(layers_in_use(_audits(arguments.audits))))


def representatives_command(arguments: argparse.Namespace) -> int:
    from conformance.cases.representative import selected
    from conformance.results.in_use import lines, read

    return print_lines(lines(selected(read())))


def shrunk_command(arguments: argparse.Namespace) -> int:
    from conformance.cases.shrunk import selected
    from conformance.results.in_use import lines, read

    return print_lines(lines(selected(read())))
