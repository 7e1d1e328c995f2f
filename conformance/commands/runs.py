"""`show` and `repro`: one run, found by its id or a glob."""

import argparse
import fnmatch
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from conformance.errors import UsageError
from conformance.host.guard import every_run
from conformance.host.isa import limit_isa
from conformance.suggestions import did_you_mean

from .arguments import add_command, add_isa, add_own

if TYPE_CHECKING:
    from conformance.cases.runs import Run
    from conformance.results.known import Entry

    from .arguments import Commands

LISTED = 10
"""Most ids in the error for a glob that matches several runs."""


def add(commands: "Commands") -> None:
    for name, command, text in (
        ("show", show_command, "execute one run and print its source, graphs, kernels, numbers and checks"),
        ("repro", repro_command, "print a script that reproduces the findings of a run with torch alone"),
    ):
        parser = add_command(commands, name, command, text)
        parser.add_argument("run", metavar="ID", help="a run id, or a glob that matches exactly one")
        add_own(parser, "take the run from this BackendConfig, or from the one that this callable returns")
        add_isa(parser)
        if name == "repro":
            parser.add_argument(
                "--least", action="store_true", help="shrink model, data and QConfig while one finding remains"
            )


def possible(run_id: str, backend_config: str | None, quantizer: str | None) -> "list[Run]":
    """The runs that an id or glob can match, on the engine that it names, if any; all of a backend's if it matches none."""
    from conformance.cases.apis import runs_on
    from conformance.cases.claims import backend, third_party
    from conformance.cases.runs import candidates
    from conformance.configs.registry import REGISTERED
    from conformance.engines.registry import engine

    _, _, engine_name = run_id.rpartition("@")
    is_glob = any(character in engine_name for character in "*?[")
    engines = [] if engine_name == run_id or is_glob else [engine_name]
    for name in engines:
        engine(name)
    backend_name = run_id.partition("/")[0]
    if backend_config:
        backends = [third_party(backend_config)]
    elif quantizer:
        backends = [third_party(quantizer, "--quantizer")]
    else:
        matching = [name for name in REGISTERED if fnmatch.fnmatchcase(name, backend_name)]
        found = [backend(name) for name in matching or [backend_name]]
        backends = [claims for claims in found if all(runs_on(claims, name) for name in engines)] or found
    return candidates(backends, engines, [run_id])


def find(run_id: str, backend_config: str | None = None, quantizer: str | None = None) -> "Run":
    """Return the run with this id, or the only one that a glob matches.

    An id takes precedence over a glob, because patterns may contain an asterisk. Raises UsageError with the nearest ids if
    no run matches, and with the matching ids if several do.
    """
    runs = {run.id: run for run in possible(run_id, backend_config, quantizer)}
    if run_id in runs:
        return runs[run_id]
    matching = [name for name in runs if fnmatch.fnmatchcase(name, run_id)]
    if len(matching) == 1:
        return runs[matching[0]]
    if matching:
        more = f" and {len(matching) - LISTED} more" if len(matching) > LISTED else ""
        raise UsageError(f"{run_id!r} matches {len(matching)} runs: {' '.join(matching[:LISTED])}{more}")
    suggestion = did_you_mean(run_id, runs, cutoff=0.5)
    raise UsageError(f"no run {run_id!r}" + (f": {suggestion}?" if suggestion else ""))


def find_with(run_id: str, options: Sequence[str]) -> "Run":
    """Return the run with this id that the options of an invocation select: pairs of a name and a value, which are declared
    here. Raises UsageError if one of them names what is not there, or if there is no such run."""
    from conformance.cases.claims import third_party
    from conformance.cases.operators.declared import declare
    from conformance.engines.registry import engine_name

    pairs = [*zip(options[::2], options[1::2], strict=True)]
    for option, value in pairs:
        if option == "--engine":
            engine_name(value)
        elif option == "--operators":
            declare(value)
    for option, value in pairs:
        if (
            option in ("--backend-config", "--quantizer")
            and third_party(value, option).name == run_id.partition("/")[0]
        ):
            return find(run_id, **{option[2:].replace("-", "_"): value})
    return find(run_id)


def ledger_entries(run: "Run", isa_limit: str | None) -> "list[Entry]":
    """Return the ledger entries that cover a run, by its id or by its features, and apply to this host."""
    from conformance.checks.likeness import Likeness
    from conformance.results.profiles import PROFILES
    from conformance.selection import Selection

    selection = Selection(isa_limit=isa_limit)
    named = [entry for entry in selection.applying if entry.matches(run.id)]
    profile = PROFILES[run.profile]
    if not profile.by_features:
        return named
    alike = Likeness(selection.applying).covering(run, frozenset(run.checks))
    return [*named, *(entry for entry in alike if entry not in named)]


def selected(arguments: argparse.Namespace) -> "tuple[Run, list[Entry], str | None]":
    """Return the run, its ledger entries, and the reason why it cannot run on this host, or None."""
    if arguments.isa:
        limit_isa(arguments.isa)
    from conformance.engines.registry import engine_name

    for path in arguments.engine:
        engine_name(path)
    run = find(arguments.run, arguments.backend_config, arguments.quantizer)
    return run, ledger_entries(run, arguments.isa), unavailable(run)


def unavailable(run: "Run") -> str | None:
    """Return the reason why a run cannot be judged on this host, or None."""
    from conformance.engines.availability import probe
    from conformance.models import apis
    from conformance.results.profiles import PROFILES

    if run.variant is None:
        return f"{run.id}: not covered: no entry for {run.claim.pattern} in conformance/cases/operators/"
    if not PROFILES[run.profile].needs_engine:
        return None
    if reason := probe(run.engine):
        return f"{run.id}: engine {run.engine} is unavailable here: {reason}"
    missing = apis.of(run.backend).unavailable(run.backend)
    return f"{run.id}: {missing}" if missing else None


@every_run()
def show_command(arguments: argparse.Namespace) -> int:
    run, entries, reason = selected(arguments)
    if reason:
        print(reason)
        return 1
    from conformance.show import show, shown

    for part in shown(run, entries) if run.constraint is not None else show(run, entries):
        print(part, flush=True)
    return 0


@every_run()
def repro_command(arguments: argparse.Namespace) -> int:
    run, entries, reason = selected(arguments)
    try:
        print(reproduction(run, entries, reason, arguments.isa, least=arguments.least), end="")
    except CannotBeReproduced as error:
        print(error, file=sys.stderr)
        return 1
    return 0


class CannotBeReproduced(Exception):
    """Raised for a run that cannot be judged here, with the reason."""


def reproduction(
    run: "Run", entries: "Sequence[Entry]", reason: str | None, isa: str | None = None, *, least: bool
) -> str:
    """Return the script of a run, which is judged for it: the least one if that is wanted and there is one, or the whole one.

    `reason` is why the run cannot be executed here. Raises CannotBeReproduced with it, or with why there is no verdict.
    """
    if reason:
        raise CannotBeReproduced(reason)
    from conformance.execution.batch import judge_runs, undefined_row
    from conformance.host.isolation import Raised
    from conformance.repro.least import script as least_script
    from conformance.repro.script import script

    (judged,) = judge_runs([run], lambda _: None)
    if isinstance(judged, Raised):
        raise CannotBeReproduced(f"{run.id}: the suite itself fails on it, which is our fault:\n{judged.traceback}")
    if judged.unusable and not judged.row.failed:
        raise CannotBeReproduced(f"{run.id}: {judged.unusable}")
    undefined = next((entry.undefined for entry in entries if entry.undefined), "")
    row = undefined_row(run, undefined) if undefined else judged.row
    note = ""
    if least:
        try:
            return least_script.least(run, row, isa=isa)
        except least_script.NoLeastForm as error:
            note = f"This is the whole script. {error}"
    text = script(run, row, entries[0] if entries else None, isa=isa)
    return text.replace(f"{run.id}\n", f"{run.id}\n\n{note}\n", 1) if note else text
