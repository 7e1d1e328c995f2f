"""Repairs as modules of plain torch."""

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from conformance.configs.engines import backend_of
from conformance.results.known import KnownFinding
from conformance.results.remedies import REMEDIES
from conformance.templates import source_templates

from . import rewrites
from .repairing import Repair, Step

IMPORTS = """\
from collections.abc import Sequence
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.backend_config import {config}
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
"""
"""What a module imports besides what its rewritings do."""
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
    config = f"get_{backend_of(repair.before.engine)}_backend_config"
    return (
        source_templates(__package__)
        .get_template("repaired.j2")
        .render(
            network=repair.subject.name,
            engine=repair.before.engine,
            module=path.stem,
            torch=torch,
            platform=platform,
            date=date,
            table="\n".join(table),
            source=_source(config),
            findings=[*_commented(repair.steps, findings)],
            config=config,
        )
    )


def _source(config: str) -> str:
    """The rewritings with their imports, and those of what quantizes."""
    source = inspect.getsource(rewrites)
    first, body = (re.search(rf"^{word} ", source, re.M).start() for word in ("import", "class"))  # type: ignore[union-attr]
    return f"{source[first:body].strip()}\n{IMPORTS.format(config=config)}\n\n{source[body:].strip()}\n"


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
