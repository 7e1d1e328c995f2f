"""`audit`: a network, layer by layer; `networks`: audits of the corpus, and the tables made of them."""

import argparse
import fnmatch
import gzip
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.errors import UsageError
from conformance.host.isa import limit_isa
from conformance.results.audits import USABLE_DB

from .arguments import (
    add_actions,
    add_backend_config,
    add_command,
    add_isa,
    add_ledger,
    add_repeatable,
    entries_of,
    print_lines,
)

if TYPE_CHECKING:
    from conformance.audit.isolated import Way
    from conformance.results.audits import Audit
    from conformance.results.known import Entry

    from .arguments import Commands

CLEAR_LINE = "\r\x1b[K"
ENGINES = ("x86", "fbgemm", "onednn", "qnnpack")


def add(commands: "Commands") -> None:
    _add_audit(commands)
    _add_networks(commands)


def _add_audit(commands: "Commands") -> None:
    text = (
        "quantize a network, run it on engines, and compare every layer with float and with its reference; the exit status "
        "is 1 if anything is to blame but quantization itself, or if the output is not usable"
    )
    audit = add_command(commands, "audit", audit_command, text)
    audit.add_argument("network", metavar="MODULE:CALLABLE", help="returns the float model, in eval mode")
    add_repeatable(audit, "--engine", "NAME", "engine to run it on (default x86)")
    audit.add_argument(
        "--quantizer",
        metavar="NAME",
        help="take it through PT2E in place of FX: xnnpack, x86inductor, arminductor, tosa, cortexm, or the module:attribute "
        "of a quantizer or of what returns one; --engine is what runs it then",
    )
    audit.add_argument(
        "--pte", metavar="FILE", help="audit this program for ExecuTorch, of which the network is the float model"
    )
    audit.add_argument(
        "--etrecord", metavar="FILE", help="the ETRecord of the program's lowering, which tells its layers apart"
    )
    audit.add_argument("--qat", action="store_true", help="have the quantizer prepare the network for training")
    audit.add_argument(
        "--inputs",
        metavar="MODULE:CALLABLE",
        help="returns batches, each a tensor, a tuple of arguments or a dict of keyword arguments: the last is held out, "
        "the others calibrate",
    )
    audit.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="N,C,H,W",
        help="shape of an input, which gets normally distributed data; once for each input",
    )
    audit.add_argument(
        "--mapping", metavar="MODULE:CALLABLE", help="returns a QConfigMapping (default: torch's for the engine)"
    )
    audit.add_argument(
        "--custom-config",
        metavar="MODULE:CALLABLE",
        help="returns the PrepareCustomConfig, such as one with modules that FX shall not trace",
    )
    add_backend_config(
        audit, "use this BackendConfig, or the one that this callable returns (default: that of the engine's backend)"
    )
    audit.add_argument(
        "--floor",
        type=_decibels,
        default=USABLE_DB,
        metavar="DB",
        help="least SQNR against float of an output that is usable (default %(default)g dB)",
    )
    audit.add_argument("--json", metavar="FILE", help="write the audits as JSON")
    audit.add_argument("-o", dest="out", metavar="HTML", help="write the audits as a page")
    audit.add_argument("--no-reduce", action="store_true", help="do not reduce blamed layers to reproduction scripts")
    add_isa(audit)
    add_ledger(audit)


def _add_networks(commands: "Commands") -> None:
    actions = add_actions(commands, "networks", "audit public networks, and print tables of the audits")
    run = add_command(
        actions, "run", run_command, "audit networks; the exit status is 1 if the ledger does not explain all"
    )
    add_repeatable(run, "--engine", "NAME", "default: every native engine, or the first one of the quantizer")
    run.add_argument("--quantizer", metavar="NAME", help="take them through PT2E in place of FX, as `audit` does")
    add_repeatable(run, "--network", "GLOB", "default: all")
    run.add_argument("--results", metavar="PATH", help="the rows file (default reports/out/networks-<arch>.jsonl)")
    run.add_argument("--audits", metavar="PATH", help="also write the audits, as compressed JSON lines")
    run.add_argument(
        "-n", dest="workers", type=int, default=0, metavar="N", help="processes (default: one for each CPU)"
    )
    run.add_argument("--reduce", action="store_true", help="reduce blamed layers to scripts, which --audits keeps")
    add_isa(run)
    add_ledger(run)
    for name, command, text in (
        ("table", table_command, "print what each engine loses, causes, and operators in float, as markdown"),
        ("layers", layers_command, "print the layers in use, as JSON lines"),
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


def _decibels(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of dB: give one such as 10")
    return value


def reporter() -> Callable[[str], None]:
    """A function that shows a stage on stderr, also when a child process calls it, whose own stderr is kept for its errors.

    On a terminal a stage takes the place of the one before.
    """
    stderr, terminal = os.dup(2), os.isatty(2)

    def report(stage: str) -> None:
        os.write(stderr, f"{CLEAR_LINE}{stage}".encode() if terminal else f"{stage}\n".encode())

    return report


def audit_command(arguments: argparse.Namespace) -> int:
    if arguments.isa:
        limit_isa(arguments.isa)
    import torch

    # no thread pool that children would lack; of a network of small layers, one thread is also the fastest to audit
    torch.set_num_threads(1)
    from conformance.audit.auditing import host
    from conformance.audit.causes import explained
    from conformance.audit.network import loaded

    ways: Sequence[Way]
    if arguments.pte or arguments.etrecord:
        ways = [_program(arguments)]
    else:
        ways = _ways_through_pt2e(arguments) if arguments.quantizer else _ways_through_fx(arguments)
    entries = entries_of(arguments.ledger)
    subject = loaded(arguments.network, arguments.inputs, arguments.shape)
    audits = [explained(way.audit(subject, reporter()), entries, host(arguments.isa)) for way in ways]
    _write(audits, entries, arguments)
    return int(not all(audited.holds for audited in audits))


def _ways_through_fx(arguments: argparse.Namespace) -> "list[Way]":
    from torch.ao.quantization import QConfigMapping
    from torch.ao.quantization.fx.custom_config import PrepareCustomConfig

    from conformance.audit.auditing import DEFAULT_ENGINE, Fx, Settings
    from conformance.audit.network import option_of
    from conformance.cases.claims import third_party

    if arguments.qat:
        raise UsageError("--qat is for quantizers of PT2E: add --quantizer, such as --quantizer xnnpack")
    engines = [Fx(name) for name in dict.fromkeys(arguments.engine or [DEFAULT_ENGINE])]
    mapping = option_of("--mapping", arguments.mapping, QConfigMapping) if arguments.mapping else None
    named = arguments.custom_config
    custom = option_of("--custom-config", named, PrepareCustomConfig) if named else None
    claims = third_party(arguments.backend_config) if arguments.backend_config else None
    settings = Settings(mapping, claims, custom, reduce=not arguments.no_reduce, floor_db=arguments.floor)
    return [replace(one, settings=settings) for one in engines]


def _ways_through_pt2e(arguments: argparse.Namespace) -> "list[Way]":
    from conformance.audit.quantizers import quantization

    for option in ("mapping", "custom_config", "backend_config"):
        if getattr(arguments, option):
            raise UsageError(f"--{option.replace('_', '-')} is FX's: configure the quantizer in its place")
    engines = dict.fromkeys(arguments.engine or [None])
    how = {"qat": arguments.qat, "reduce": not arguments.no_reduce, "floor_db": arguments.floor}
    return [quantization(arguments.quantizer, name, **how) for name in engines]


def _program(arguments: argparse.Namespace) -> "Way":
    """The program that --pte names."""
    if not arguments.pte:
        raise UsageError("--etrecord is that of a program: add --pte, the file that was lowered with it")
    for option in ("engine", "quantizer", "qat", "mapping", "custom_config", "backend_config"):
        if getattr(arguments, option):
            raise UsageError(
                f"--{option.replace('_', '-')} says how to quantize, and --pte is quantized already: give one"
            )
    from conformance.audit.made import Made
    from conformance.engines.executorch.program_file import ProgramFile

    record = Path(arguments.etrecord) if arguments.etrecord else None
    return Made(ProgramFile(Path(arguments.pte)), record, arguments.floor)


def _write(audits: "Sequence[Audit]", entries: "Sequence[Entry]", arguments: argparse.Namespace) -> None:
    """Print the audits, and write the files that the options name."""
    from conformance.reports.audit_html import write
    from conformance.reports.audit_text import by_engine, summary_line, text
    from conformance.results.audits import to_json
    from conformance.results.jsonl import replacing

    reasons = {entry.id: entry.finding.reason for entry in entries}
    upstream = {entry.id: entry.finding.upstream for entry in entries}
    if arguments.json:
        with replacing(Path(arguments.json), "--json") as beside:
            beside.write_text(json.dumps([to_json(one) for one in audits], indent=1), encoding="utf-8")
    if arguments.out:
        write(audits, Path(arguments.out), reasons, upstream)
    if sys.stderr.isatty():
        print(CLEAR_LINE, end="", file=sys.stderr, flush=True)
    for audited in audits:
        print(text(audited, reasons, upstream))
    for audited in audits:
        for reduction in audited.reductions:
            if reduction.script:
                print(f"# --- reproduction: {reduction.layer} on {audited.engine}\n{reduction.script}")
    if len(audits) > 1:
        for line in (*by_engine(audits), *map(summary_line, audits)):
            print(line)
    sys.stdout.flush()


def list_command(arguments: argparse.Namespace) -> int:
    from conformance.networks.zoo import NETWORKS

    return print_lines(f"{network.name:30} {network.task:16} {network.package}" for network in NETWORKS.values())


def selected(globs: Sequence[str]) -> list[str]:
    """The names of the networks that match a glob, all without one. Raises UsageError for a glob that matches none."""
    from conformance.networks.zoo import NETWORKS, network

    for glob in globs:
        if not fnmatch.filter(NETWORKS, glob):
            network(glob)
    return [name for name in NETWORKS if not globs or any(fnmatch.fnmatchcase(name, glob) for glob in globs)]


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
    for audits in audited(names, ways, arguments.workers or os.cpu_count() or 1):
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
