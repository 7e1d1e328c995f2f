"""`trusted`: the part of a config that rows prove, as a module of plain torch."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.errors import UsageError

from .arguments import add_backend_config, add_command, add_ledger, add_rows, entries_of, module_path, of_models

if TYPE_CHECKING:
    from conformance.results.known import Host
    from conformance.results.rows import Row

    from .arguments import Commands


def add(commands: "Commands") -> None:
    text = (
        "write what of a config holds in default use on an engine of a platform, as a module of plain torch that has the "
        "config, its mapping, and a function that quantizes"
    )
    trusted = add_command(commands, "trusted", trusted_command, text)
    source = trusted.add_mutually_exclusive_group(required=True)
    source.add_argument("--backend", metavar="NAME", help="the config of this backend")
    add_backend_config(source, "this BackendConfig, or the one that this callable returns")
    trusted.add_argument("--engine", metavar="NAME", required=True, help="the engine that ran it")
    add_rows(trusted, "rows files of the config in default use, of one torch and one platform")
    trusted.add_argument("-o", dest="out", metavar="FILE", required=True, help="the module to write")
    add_ledger(trusted)


def trusted_command(arguments: argparse.Namespace) -> int:
    import datetime

    import torch

    from conformance.cases.claims import backend, third_party
    from conformance.results.jsonl import replacing
    from conformance.trusted.promises import trusted
    from conformance.trusted.written import module

    own = arguments.backend_config
    claims = of_models(third_party(own) if own else backend(arguments.backend))
    path = module_path("-o", arguments.out, "trusted.py")
    rows, on = _rows([*map(Path, arguments.rows)], claims.name, arguments.engine)
    if on.torch.partition("+")[0] != torch.__version__.partition("+")[0]:
        raise UsageError(
            f"the rows are of torch {on.torch}, and this is torch {torch.__version__}: run the suite with this one, or this "
            "command with that one"
        )
    entries = entries_of(arguments.ledger)
    made = trusted(rows, claims, arguments.engine, entries, on)
    if not made.kept:
        raise UsageError(
            f"no claim of {claims.name} holds in default use on {arguments.engine}: there is nothing to trust"
        )
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = module(made, {entry.id: entry.finding for entry in entries}, path=path, date=today)
    with replacing(path, "-o") as beside:
        beside.write_text(text, encoding="utf-8")
    print(f"{path}: {len(made.kept)} of {len(claims.claims)} claims of {claims.name} hold on {arguments.engine}")
    return 0


def _rows(paths: Sequence[Path], backend: str, engine: str) -> "tuple[list[Row], Host]":
    """The rows of a backend on an engine in default use, and their host. Raises UsageError if there are none, or of several
    hosts."""
    from conformance.results.environments import environment
    from conformance.results.rows import read_all
    from conformance.results.status import is_default_use

    rows, hosts = [], []
    for path in paths:
        for part in read_all(path):
            found = [row for row in part.rows if (row.backend, row.engine) == (backend, engine) and is_default_use(row)]
            if found:
                rows += found
                hosts.append(environment(path, part.header).host)
    if not any(row.verdict.executed for row in rows):
        raise UsageError(
            f"no row of {backend} on {engine} in default use was executed: run "
            f"`python -m pytest conformance -n auto --backend {backend} --case '*/default/*'` there"
        )
    if others := {f"torch {one.torch} on {one.platform}" for one in hosts}.difference(
        [first := f"torch {hosts[0].torch} on {hosts[0].platform}"]
    ):
        raise UsageError(f"the rows are of {first} and of {', '.join(sorted(others))}: give those of one platform")
    return rows, hosts[0]
