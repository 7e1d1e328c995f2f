"""`audit`: a network, layer by layer."""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.host.isa import ISA_LIMITS, limit_isa
from conformance.results.audits import USABLE_DB

from .arguments import add_backend_config, add_command, add_ledger, entries_of

if TYPE_CHECKING:
    from conformance.results.audits import Audit
    from conformance.results.known import Entry

    from .arguments import Commands


CLEAR_LINE = "\r\x1b[K"


def add(commands: "Commands") -> None:
    text = (
        "quantize a network, run it on engines, and compare every layer with float and with its reference; the exit status "
        "is 1 if anything is to blame but quantization itself, or if the output is not usable"
    )
    audit = add_command(commands, "audit", audit_command, text)
    audit.add_argument("network", metavar="MODULE:CALLABLE", help="returns the float model, in eval mode")
    audit.add_argument(
        "--engine", action="append", default=[], metavar="NAME", help="engine to run it on (default x86); repeatable"
    )
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
    audit.add_argument("--isa", metavar="NAME", help=f"limit the instruction set: {', '.join(ISA_LIMITS)}")
    add_ledger(audit)


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
    from torch.ao.quantization import QConfigMapping
    from torch.ao.quantization.fx.custom_config import PrepareCustomConfig

    # no thread pool that children would lack; of a network of small layers, one thread is also the fastest to audit
    torch.set_num_threads(1)
    from conformance.audit.auditing import Settings, audit_engines, claims_for, host
    from conformance.audit.causes import explained
    from conformance.audit.network import loaded, option_of
    from conformance.cases.claims import third_party

    engines = list(dict.fromkeys(arguments.engine)) or ["x86"]
    for name in engines:
        claims_for(name)
    mapping = option_of("--mapping", arguments.mapping, QConfigMapping) if arguments.mapping else None
    named = arguments.custom_config
    custom = option_of("--custom-config", named, PrepareCustomConfig) if named else None
    claims = third_party(arguments.backend_config) if arguments.backend_config else None
    entries = entries_of(arguments.ledger)
    subject = loaded(arguments.network, arguments.inputs, arguments.shape)
    settings = Settings(mapping, claims, custom, reduce=not arguments.no_reduce, floor_db=arguments.floor)
    audits = [
        explained(one, entries, host(arguments.isa)) for one in audit_engines(subject, engines, settings, reporter())
    ]
    _write(audits, entries, arguments)
    return int(not all(audited.holds for audited in audits))


def _write(audits: "Sequence[Audit]", entries: "Sequence[Entry]", arguments: argparse.Namespace) -> None:
    """Print the audits, and write the files that the options name."""
    from conformance.reports.audit_html import write
    from conformance.reports.audit_text import summary_line, text
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
        for audited in audits:
            print(summary_line(audited))
    sys.stdout.flush()
