"""Rows files of invocations that never were, for tests of what is made of them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.results import diagnostics, rows
from conformance.results.diagnostics import Details, Offsets
from conformance.results.profiles import CHECKS
from conformance.results.rows import Row

HEADER = {
    "suite": "1.0",
    "torch": "2.13.0",
    "python": "3.12.1",
    "os": "Linux",
    "arch": "x86_64",
    "cpu": "a CPU",
    "cpu_flags": ["avx2"],
    "isa_limit": None,
    "isa": "avx2",
    "engines": {"fbgemm": "available", "x86": "available"},
    "git": None,
    "backends": ["fbgemm"],
    "selection": [],
}
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\x1b[31mred\x1b[0m\n"
    "::error::injected | a cell | `code` [link](https://example.invalid) @someone {{ 7 * 7 }} \u202egnirts \u2028 &amp;"
)
"""A text that tries to be a script, a terminal's command, a workflow command, markdown, and a template."""


LEDGER = """
[[deviation]]
id = "linear-is-off"
match = "fbgemm/nn.Linear/*@fbgemm"
check = "numerics"
reason = "The kernel is off."
upstream = "pytorch/pytorch#1"
"""
"""An entry for a linear layer that is off in numerics."""


def row(name: str = "nn.ReLU", *, fails: Iterable[str] = (), variant: str = "default", **changes: Any) -> Row:
    """A row that conforms, or deviates in some checks."""
    fails = set(fails)
    made = Row(
        id="",
        backend="fbgemm",
        pattern=name,
        dtype_config="static-quint8",
        flow="ptq",
        variant=variant,
        profile="exact",
        engine="fbgemm",
        verdict="deviates" if fails else "conforms",
        checks={check: "fail" if check in fails else "pass" for check in CHECKS},
        detail="; ".join(f"{check}: it is wrong" for check in CHECKS if check in fails),
        kernels=("quantized.relu",),
        total=8,
        steps_max=2 if "numerics" in fails else 0,
        mismatched=3 if "numerics" in fails else 0,
        ties=1,
        tolerated=0,
    )
    made = replace(made, **changes)
    if made.verdict in ("crashes", "unavailable"):
        made = replace(made, checks={}, total=None, kernels=())
    case = (made.backend, made.pattern, made.dtype_config, made.flow, made.variant, made.profile)
    return replace(made, id=f"{'/'.join(case)}@{made.engine}")


def offsets(*steps: int, **changes: Any) -> Offsets:
    """Errors by position: those of the first elements."""
    where = [number for number, step in enumerate(steps) if step]
    made = Offsets(
        "quint8 (8,) scale 0.5 zero point 3",
        "steps",
        8,
        len(where),
        tuple(where),
        tuple(steps[number] for number in where),
        (),
        tuple((step, steps.count(step)) for step in sorted({*steps} - {0})),
        "0" * 16,
        f"{hash(steps) & 0xFFFFFFFF:016x}",
    )
    return replace(made, **changes)


def seen(of: Row, *outputs: Offsets, text: str = "graph():\n    return x") -> Details:
    return Details(of.id, {"model": text, "lowered model": text}, outputs, "print('DEVIATES')\n" if of.failed else "")


def write(
    path: Path, of: Iterable[Row], header: Mapping[str, Any] | None = None, found: Iterable[Details] | None = None
) -> Path:
    """A rows file, with details beside it if any are given."""
    writer = rows.Writer(path, {**HEADER, **(header or {})})
    for one in of:
        writer.add(one)
    digest = writer.finish({"seconds": 1.5, "torch_seconds": 1.0})
    if found is not None:
        beside = diagnostics.Writer()
        for one_seen in found:
            beside.add(one_seen.id, one_seen.line)
        beside.finish(path, digest)
    return path
