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
import copy
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
from torch.ao.quantization.backend_config import {config}
from torch.fx import GraphModule, Node, symbolic_trace
from torch.fx.node import map_arg
"""
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
            source=IMPORTS.format(config=config) + "\n" + _definitions().strip(),
            findings=[*_commented(repair.steps, findings)],
            config=config,
        )
    )


def _definitions() -> str:
    """The rewritings without their module's docstring and imports."""
    source = inspect.getsource(rewrites)
    return source[re.search(r"^class ", source, re.M).start() :]  # type: ignore[union-attr]


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
