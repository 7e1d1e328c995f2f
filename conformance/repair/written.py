"""Repairs as modules of plain torch."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from conformance.configs.engines import backend_of
from conformance.repro.inline import standalone
from conformance.results.known import KnownFinding
from conformance.results.remedies import REMEDIES
from conformance.templates import source_templates

from . import rewrites
from .repairing import Repair, Step
from .rewrites import REWRITES

WIDTH = 118


def module(
    repair: Repair,
    findings: Mapping[str, KnownFinding],
    table: Iterable[str],
    *,
    path: Path,
    torch: str,
    platform: str,
    date: str,
) -> str:
    """The source of a module that quantizes a network as its repair does. `findings` are those of the ledger by id, `table`
    shows the network before and after; the file will be at `path`."""
    templates = source_templates(__package__)
    engine = repair.before.engine
    body = templates.get_template("body.j2").render(
        engine=engine,
        backend=backend_of(engine),
        findings=[*_commented(repair.steps, findings)],
        rewrites={kind: rewrite.__name__ for kind, rewrite in REWRITES.items()},
    )
    return templates.get_template("repaired.j2").render(
        network=repair.subject.name,
        engine=engine,
        module=path.stem,
        torch=torch,
        platform=platform,
        date=date,
        table="\n".join(table),
        source=standalone(body, (rewrites.__name__,)),
    )


def _commented(steps: Sequence[Step], findings: Mapping[str, KnownFinding]) -> Iterator[tuple[list[str], list[Step]]]:
    """Yield the steps for each finding and remedy, with what is wrong and what is done about it."""
    for cause, kind in dict.fromkeys((step.cause, step.kind) for step in steps):
        known = findings.get(cause)
        upstream = f" ({known.upstream})" if known and "#" in known.upstream else ""
        wrong = f"{cause}{upstream}: {known.reason}" if known else "not in the ledger."
        yield (
            textwrap.wrap(f"{wrong} So {REMEDIES[kind]}.", WIDTH),
            [step for step in steps if (step.cause, step.kind) == (cause, kind)],
        )
