"""`audit`: a network, layer by layer."""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.errors import UsageError
from conformance.host.isa import limit_isa
from conformance.results.audits import USABLE_DB

from .arguments import (
    add_backend_config,
    add_command,
    add_isa,
    add_ledger,
    add_repeatable,
    entries_of,
    given,
    module_path,
    of_models,
)

if TYPE_CHECKING:
    from torch.ao.quantization import QConfigMapping
    from torch.ao.quantization.fx.custom_config import PrepareCustomConfig

    from conformance.audit.isolated import Way
    from conformance.cases.claims import BackendClaims
    from conformance.results.audits import Audit
    from conformance.results.known import Entry

    from .arguments import Commands

CLEAR_LINE = "\r\x1b[K"


def add(commands: "Commands") -> None:
    _add_audit(commands)


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
    audit.add_argument(
        "--quantize",
        metavar="CONFIG",
        help="have torchao's quantize_ quantize it in place by this config, such as 'Int8WeightOnlyConfig()', or by the "
        "module:attribute of a config or of a function that quantizes the model it is given; --backend-config names another "
        "library's declarations",
    )
    audit.add_argument("--qat", action="store_true", help="have the quantizer prepare the network for training")
    add_inputs(audit)
    add_preparation(audit)
    audit.add_argument(
        "--floor",
        type=_decibels,
        default=USABLE_DB,
        metavar="DB",
        help="least SQNR against float of an output that is usable (default %(default)g dB)",
    )
    audit.add_argument("--json", metavar="FILE", help="write the audits as JSON")
    audit.add_argument("-o", dest="out", metavar="HTML", help="write the audits as a page")
    audit.add_argument(
        "--repair",
        metavar="FILE",
        help="try the remedies of what is to blame, and write a module of plain torch that quantizes the network with those "
        "that help; the exit status is then that of the repaired network",
    )
    audit.add_argument("--no-reduce", action="store_true", help="do not reduce blamed layers to reproduction scripts")
    add_isa(audit)
    add_ledger(audit)


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what a network is calibrated and compared with."""
    parser.add_argument(
        "--inputs",
        metavar="MODULE:CALLABLE",
        help="returns batches, each a tensor, a tuple of arguments or a dict of keyword arguments: the last is held out, "
        "the others calibrate",
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="N,C,H,W",
        help="shape of an input, which gets normally distributed data; once for each input",
    )


def add_preparation(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how FX prepares a network."""
    parser.add_argument(
        "--mapping", metavar="MODULE:CALLABLE", help="returns a QConfigMapping (default: torch's for the engine)"
    )
    parser.add_argument(
        "--custom-config",
        metavar="MODULE:CALLABLE",
        help="returns the PrepareCustomConfig, such as one with modules that FX shall not trace",
    )
    add_backend_config(
        parser, "use this BackendConfig, or the one that this callable returns (default: that of the engine's backend)"
    )


def preparation(
    arguments: argparse.Namespace,
) -> "tuple[QConfigMapping | None, BackendClaims | None, PrepareCustomConfig | None]":
    """What these options name: a mapping, the claims of a config, and what `prepare_fx` is told about modules."""
    from torch.ao.quantization import QConfigMapping
    from torch.ao.quantization.fx.custom_config import PrepareCustomConfig

    from conformance.audit.network import option_of
    from conformance.cases.claims import third_party

    mapping = option_of("--mapping", arguments.mapping, QConfigMapping) if arguments.mapping else None
    named = arguments.custom_config
    custom = option_of("--custom-config", named, PrepareCustomConfig) if named else None
    claims = of_models(third_party(arguments.backend_config)) if arguments.backend_config else None
    return mapping, claims, custom


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

    if arguments.repair:
        return _repair(arguments)
    ways = _ways(arguments)
    entries = entries_of(arguments.ledger)
    subject = loaded(arguments.network, arguments.inputs, arguments.shape)
    audits = [explained(way.audit(subject, reporter()), entries, host(arguments.isa)) for way in ways]
    _write(audits, entries, arguments)
    return int(not all(audited.holds for audited in audits))


def _ways(arguments: argparse.Namespace) -> "Sequence[Way]":
    """The ways to quantize and to run the network that the options name."""
    if arguments.pte or arguments.etrecord:
        return [_program(arguments)]
    if arguments.quantize:
        return _ways_in_place(arguments)
    return _ways_through_pt2e(arguments) if arguments.quantizer else _ways_through_fx(arguments)


def _repair(arguments: argparse.Namespace) -> int:
    """Repair a network on an engine of torch, and write the module that does it."""
    import datetime
    from collections import Counter

    import torch

    from conformance.audit.auditing import DEFAULT_ENGINE, host
    from conformance.audit.network import loaded
    from conformance.repair.repairing import Repairing
    from conformance.repair.written import module
    from conformance.reports.repair_text import steps_text, table
    from conformance.results.jsonl import replacing

    others = (
        "quantizer",
        "quantize",
        "qat",
        "pte",
        "etrecord",
        "mapping",
        "custom_config",
        "backend_config",
        "out",
        "json",
    )
    if option := given(arguments, others):
        raise UsageError(f"--repair is for torch's own engines with their default mapping: leave out {option}")
    if len(engines := arguments.engine or [DEFAULT_ENGINE]) > 1:
        raise UsageError(f"--repair is for one engine: choose from {', '.join(engines)}")
    path = module_path("--repair", arguments.repair, "repaired.py")
    entries, here = entries_of(arguments.ledger), host(arguments.isa)
    subject = loaded(arguments.network, arguments.inputs, arguments.shape)
    repair = Repairing(engines[0], entries, here, reporter()).repair(subject)
    figures = table(repair.before, repair.after)
    findings = {entry.id: entry.finding for entry in entries}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = module(repair, findings, figures, path=path, torch=torch.__version__, platform=here.platform, date=today)
    with replacing(path, "--repair") as beside:
        beside.write_text(text, encoding="utf-8")
    clear_line()
    print("\n".join([f"{subject.name} on {engines[0]}, written to {path}", *figures]))
    for line in steps_text(Counter((step.kind, step.cause) for step in repair.steps)):
        print(line)
    return int(not repair.after.holds)


def _ways_through_fx(arguments: argparse.Namespace) -> "list[Way]":
    from conformance.audit.auditing import DEFAULT_ENGINE, Fx, Settings

    if arguments.qat:
        raise UsageError("--qat is for quantizers of PT2E: add --quantizer, such as --quantizer xnnpack")
    engines = [Fx(name) for name in dict.fromkeys(arguments.engine or [DEFAULT_ENGINE])]
    settings = Settings(*preparation(arguments), reduce=not arguments.no_reduce, floor_db=arguments.floor)
    return [replace(one, settings=settings) for one in engines]


def _ways_through_pt2e(arguments: argparse.Namespace) -> "list[Way]":
    from conformance.audit.quantizers import quantization

    if option := given(arguments, ("mapping", "custom_config", "backend_config")):
        raise UsageError(f"{option} is FX's: configure the quantizer in its place")
    engines = dict.fromkeys(arguments.engine or [None])
    how = {"qat": arguments.qat, "reduce": not arguments.no_reduce, "floor_db": arguments.floor}
    return [quantization(arguments.quantizer, name, **how) for name in engines]


def _ways_in_place(arguments: argparse.Namespace) -> "list[Way]":
    """The ways through `quantize_` on each engine."""
    from conformance.audit.in_place import in_place
    from conformance.cases.claims import backend, third_party

    if option := given(arguments, ("quantizer", "qat", "mapping", "custom_config")):
        raise UsageError(f"{option} is of another way to quantize than --quantize: give one")
    claims = third_party(arguments.backend_config) if arguments.backend_config else backend("torchao")
    engines = dict.fromkeys(arguments.engine or [None])
    return [in_place(arguments.quantize, name, claims, arguments.floor) for name in engines]


def _program(arguments: argparse.Namespace) -> "Way":
    """The program that --pte names."""
    if not arguments.pte:
        raise UsageError("--etrecord is that of a program: add --pte, the file that was lowered with it")
    others = ("engine", "quantizer", "quantize", "qat", "mapping", "custom_config", "backend_config")
    if option := given(arguments, others):
        raise UsageError(f"{option} says how to quantize, and --pte is quantized already: give one")
    from conformance.audit.made import Made
    from conformance.engines.executorch.program_file import ProgramFile

    record = Path(arguments.etrecord) if arguments.etrecord else None
    return Made(ProgramFile(Path(arguments.pte)), record, arguments.floor)


def _write(audits: "Sequence[Audit]", entries: "Sequence[Entry]", arguments: argparse.Namespace) -> None:
    """Print the audits, and write the files that the options name."""
    from conformance.reports.audit_html import write
    from conformance.reports.audit_text import by_engine, summary_line, text

    reasons = {entry.id: entry.finding.reason for entry in entries}
    upstream = {entry.id: entry.finding.upstream for entry in entries}
    write_json(audits, arguments.json)
    if arguments.out:
        write(audits, Path(arguments.out), reasons, upstream)
    clear_line()
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


def write_json(audits: "Sequence[Audit]", path: str | None) -> None:
    """Write audits to the file of `--json`, if there is one."""
    from conformance.results.audits import to_json
    from conformance.results.jsonl import replacing

    if path:
        with replacing(Path(path), "--json") as beside:
            beside.write_text(json.dumps([to_json(one) for one in audits], indent=1), encoding="utf-8")


def clear_line() -> None:
    """Clear the line of the last stage on a terminal."""
    if sys.stderr.isatty():
        print(CLEAR_LINE, end="", file=sys.stderr, flush=True)
