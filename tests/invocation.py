"""Rows files with invented rows, for tests of readers and reports."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.results import diagnostics, rows
from conformance.results.diagnostics import Details, Offsets
from conformance.results.findings import Finding, detail_of
from conformance.results.findings.stages import Crashes, Raises
from conformance.results.findings.values import CodesDiffer, Element
from conformance.results.profiles import CHECKS, OF_MAPPINGS
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict

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
"""A text that tries to inject a script, a terminal command, a workflow command, markdown, and a template expression."""

LEDGER = """
[[finding]]
id = "linear-is-off"
title = "Linear is off"
reason = "The kernel is off."
upstream = "pytorch/pytorch#1"
shows = [{ where = { backend = "fbgemm", engine = "fbgemm", pattern = "nn.Linear" }, must = "numerics" }]
"""
"""An entry for a linear layer that fails `numerics`."""


def wrong(check: str, message: str = "it is wrong") -> Finding:
    """A finding of a check with this message."""
    return Raises(check, "execute", "RuntimeError", message)


def row(
    name: str = "nn.ReLU",
    *,
    fails: Iterable[str] = (),
    variant: str = "default",
    message: str = "it is wrong",
    verdict: str = "",
    **changes: Any,
) -> Row:
    """A row with consistent fields. It conforms, or deviates in the checks that it `fails`, unless a verdict is set."""
    fails = set(fails)
    verdict = verdict or ("deviates" if fails else "conforms")
    findings = tuple(wrong(check, message) for check in CHECKS if check in fails)
    if verdict == "crashes":
        findings = (Crashes("crashes", "killed by SIGSEGV"),)
    result = Row(
        id="",
        backend="fbgemm",
        pattern=name,
        dtype_config="static-quint8",
        flow="ptq",
        variant=variant,
        profile="exact",
        engine="fbgemm",
        verdict=Verdict(verdict),
        checks={
            name: "fail" if name in fails else "pass" for name in CHECKS if name in fails or name not in OF_MAPPINGS
        },
        detail=detail_of(findings),
        findings=findings,
        kernels=("quantized.relu",),
        total=8,
        steps_max=2 if "numerics" in fails else 0,
        mismatched=3 if "numerics" in fails else 0,
        ties=1,
        tolerated=0,
    )
    result = replace(result, **changes)
    if not result.verdict.judged:
        result = replace(result, checks={}, total=None, kernels=())
    case = (result.backend, result.pattern, result.dtype_config, result.flow, result.variant, result.profile)
    return replace(result, id=f"{'/'.join(case)}@{result.engine}")


def full_row() -> Row:
    """A deviating row with every field set, whose findings have every type of field."""
    codes = CodesDiffer(
        "numerics", 0, 3, 32, 1, (Element((0, 4), 131.0, 130.0, 130.4), Element((1, 0), float("inf"), 2.0))
    )
    findings = (codes, wrong("numerics", "3 codes — “differ”"))
    return row(
        "nn.Linear",
        fails=["numerics"],
        checks={**dict.fromkeys(CHECKS, "pass"), "numerics": "fail", "accuracy": "skip"},
        detail=detail_of(findings),
        findings=findings,
        kernels=("quantized.linear",),
        steps_max=1,
        mismatched=3,
        ties=2,
        total=32,
        sqnr_db=41.5,
        known="linear-off-by-one",
        seconds=0.05,
    )


ROWS = [row("nn.ReLU"), full_row(), row("F.relu", verdict="unavailable", detail="engine fbgemm: not built")]
CONFORMS, WRONG, DIES = row("nn.ReLU"), row("nn.Linear", fails=["numerics"]), row("nn.GRU", verdict="crashes")


def offsets(*steps: int, **changes: Any) -> Offsets:
    """The offsets of an output of 8 elements whose first elements are off by these steps."""
    positions = [number for number, step in enumerate(steps) if step]
    result = Offsets(
        "quint8 (8,) scale 0.5 zero point 3",
        "steps",
        8,
        len(positions),
        tuple(positions),
        tuple(steps[number] for number in positions),
        (),
        tuple((step, steps.count(step)) for step in sorted({*steps} - {0})),
        "0" * 16,
        f"{hash(steps) & 0xFFFFFFFF:016x}",
    )
    return replace(result, **changes)


def details_of(row: Row, *outputs: Offsets, text: str = "graph():\n    return x") -> Details:
    """Diagnostics of a row, with two sections of this text, and a reproduction if the row fails."""
    return Details(row.id, {"model": text, "lowered model": text}, outputs, "print('DEVIATES')\n" if row.failed else "")


def write(
    path: Path,
    content: Iterable[Row],
    header: Mapping[str, Any] | None = None,
    details: Iterable[Details] | None = None,
    finished: str = "2026-01-01T02:30:00+00:00",
) -> Path:
    """Write a rows file, and its diagnostics file unless `details` is None."""
    writer = rows.Writer(path, {**HEADER, **(header or {})})
    for row in content:
        writer.add(row)
    digest = writer.finish({"seconds": 1.5, "torch_seconds": 1.0}, finished)
    if details is not None:
        beside = diagnostics.Writer()
        for run_details in details:
            beside.add(run_details.id, run_details.line)
        beside.finish(path, digest)
    return path


def store_night(history: Path, day: int, content: Iterable[Row], **header: Any) -> Path:
    """Add the rows of a night in January 2026 to a history, and return their file. They were finished in the hour `hour`."""
    from conformance.reports.rows_history import store

    hour = header.pop("hour", 2)
    path = history.with_name(f"night-{len([*history.parent.glob('night-*')])}.jsonl")
    store([write(path, content, header, finished=f"2026-01-{day:02}T{hour:02}:30:00+00:00")], str(history))
    return path
