"""What there is to see of a run beyond its row, from the evidence that it left: texts by title, and how far off it is."""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from conformance.cases.constraints import of_side
from conformance.cases.recipes import dtype_name
from conformance.cases.runs import Run
from conformance.checks.evidence import Evidence
from conformance.checks.judge import FROM_RUN_TO_RUN
from conformance.engines.registry import engine
from conformance.engines.trace import Execution, Output
from conformance.errors import brief
from conformance.goldens.golden import Expected
from conformance.models import build, fx
from conformance.models.observers import is_observer
from conformance.properties.metamorphic import callables
from conformance.results.constraints import DOCUMENTED
from conformance.results.diagnostics import MOST_POSITIONS, NO_MATCH, Details, Offsets
from conformance.results.rows import Row

PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)
BINS = 41
"""Bins of a histogram of float values."""


def details(evidence: Evidence, row: Row) -> Details:
    """Everything about a judged case but its reproduction. What differs from run to run has no offsets."""
    seen = {**setting(evidence.run), **graphs(evidence)} if row.failed else {}
    if evidence.execution is not None:
        seen |= executed(evidence.execution)
    chance = FROM_RUN_TO_RUN in row.detail or (row.total is None and "stable" in row.failed)
    return Details(row.id, {**seen, **raised(evidence)}, () if chance else outputs(evidence))


def setting(run: Run) -> dict[str, str]:
    """What a run is before it runs: its model and how it is to be quantized."""
    assert run.variant is not None
    model = {"model": run.model.source}
    if run.constraint is not None:
        side, field = run.constraint.side, run.constraint.field
        return {**model, "constraint": f"{side}: {of_side(run.claim.dtypes, side)}\n{field}: {DOCUMENTED[field]}"}
    recipe = run.recipe
    return {**model, "quantization": f"qconfig = {recipe.qconfig}\nmapping = {recipe.mapping}\n{run.backend.source}"}


def converted(run: Run) -> dict[str, str]:
    """Take a run to the lowered model and no further: what there is to see of one that crashes, or that raises on the way."""
    evidence = Evidence(run)
    raised = {}
    with engine(run.engine).scope(), fx.quiet():
        try:
            given = callables.subject(run) if run.profile == "laws" else build.subject(run)
            evidence.prepared = fx.prepare(given, run.backend.config)
            fx.calibrate(evidence.prepared, given)
            evidence.reference = fx.reference(evidence.prepared, run.backend.config)
            evidence.lowered = engine(run.engine).convert(evidence.prepared, run.backend.config)
        except Exception as error:  # whatever torch raises is what there is to see
            raised = {"raised": brief(error)}
    return {**graphs(evidence), **raised}


def graphs(evidence: Evidence) -> dict[str, str]:
    """The three models, each with what its graph does not tell: modules and quantization parameters."""
    found = {}
    for title, graph in (
        ("observed", evidence.prepared),
        ("reference", evidence.reference),
        ("lowered", evidence.lowered),
    ):
        if graph is None:
            found[f"{title} model"] = "none: an earlier stage failed"
            continue
        found[f"{title} model"] = "\n".join([str(graph.graph).strip(), *_modules(graph)])
        if title == "observed":
            found["observers"] = "\n".join(_observers(graph)) or "none"
        if title == "reference":
            found["quantization parameters of the reference model"] = "\n".join(_qparams(graph)) or "none"
    return found


def executed(execution: Execution) -> dict[str, str]:
    """Which kernels ran."""
    marks = (
        f"{'quantized' if k.quantized else 'float    ' if k.in_float else '         '}  {k.name}"
        for k in execution.kernels
    )
    return {
        "kernels in order": "\n".join(marks) or "none",
        "conversions inside of kernels": "\n".join(execution.nested) or "none",
    }


def raised(evidence: Evidence) -> dict[str, str]:
    """What stages raised, if any did."""
    failures = "\n".join(f"{stage}: {error}" for stage, error in evidence.failures.items())
    return {"raised": failures} if failures else {}


def _modules(graph: GraphModule) -> Iterator[str]:
    for name, module in graph.named_children():
        if not is_observer(module):
            yield f"    {name}: {_described(module)}"


def _described(module: nn.Module) -> str:
    """A module as it describes itself. Some unpack their weights for that, which not every engine can."""
    try:
        return str(module).splitlines()[0]
    except Exception as error:  # whatever the engine raises
        return f"{type(module).__name__}, which cannot describe itself: {brief(error)}"


def _observers(graph: GraphModule) -> Iterator[str]:
    for name, module in graph.named_modules():
        observer: Any = module
        if is_observer(observer):
            what = f"{name}: {type(observer).__name__} {dtype_name(observer.dtype)}"
            what += f" [{getattr(observer, 'quant_min', None)}, {getattr(observer, 'quant_max', None)}]"
            try:
                scale, zero_point = observer.calculate_qparams()
                what += f" scale {_numbers(scale)} zero point {_numbers(zero_point)}"
            except Exception as error:  # placeholders have none, and say so in several ways
                what += f" without scale ({type(error).__name__})"
            yield what


def _qparams(graph: GraphModule) -> Iterator[str]:
    for name, value in graph.named_buffers():
        if "scale" in name or "zero_point" in name:
            yield f"{name}: {_numbers(value)}"


def _numbers(tensor: Tensor) -> str:
    values = tensor.flatten().tolist()
    return (
        repr(values[0])
        if len(values) == 1
        else f"[{', '.join(map(repr, values[:16]))}{', …' if len(values) > 16 else ''}]"
    )


def described(output: Output) -> str:
    """An output in words: dtype, shape, and its grid."""
    q, shape = output.quantized, tuple(output.values.shape)
    if q is None:
        return f"{dtype_name(output.values.dtype)} {shape}"
    if q.qscheme() not in PER_TENSOR:
        return f"{dtype_name(q.dtype)} {shape} {str(q.qscheme()).removeprefix('torch.')}"
    return f"{dtype_name(q.dtype)} {shape} scale {q.q_scale()!r} zero point {q.q_zero_point()}"


def outputs(evidence: Evidence) -> tuple[Offsets, ...]:
    """How far the engine's outputs are from the golden's; nothing where there is none of either."""
    if evidence.golden is None or evidence.execution is None:
        return ()
    return tuple(
        offsets(got, expected)
        for got, expected in zip(evidence.execution.outputs, evidence.golden.outputs, strict=False)
    )


def offsets(got: Output, expected: Expected) -> Offsets:
    """How far one output is from its golden: from the one code that rounding half to even gives, in steps, or in values."""
    total, q = expected.low.numel(), got.quantized
    golden, codes = _digest(expected.code, expected.scale, expected.zero_point), ""
    if got.values.shape != expected.low.shape:
        return Offsets(described(got), NO_MATCH, total, total, golden=golden)
    values = got.values.double()
    if q is not None and q.qscheme() in PER_TENSOR:
        codes = _digest(q.int_repr(), q.q_scale(), q.q_zero_point())
        # as values are computed for the golden, so that equal codes on equal grids are equal to the bit
        values = (q.int_repr().double() - q.q_zero_point()) * q.q_scale()
    off = (values - expected.values).flatten()
    tied = torch.zeros(0, dtype=torch.bool)
    if expected.quantized:
        off = off / expected.scale
        whole = off.round()
        off = torch.where((off - whole).abs() < 1e-9, whole, off)
        other = ((expected.low.int() + expected.high.int()) - expected.code.int()).double()
        tied = (other != expected.code.double()).flatten() & (off == (other - expected.code.double()).flatten())
    greatest = torch.finfo(torch.float32).max
    off = off.nan_to_num(greatest, greatest, -greatest).clamp(-greatest, greatest)
    where = off.nonzero().flatten()
    kept = where
    if len(where) > MOST_POSITIONS:
        kept = where[off[where].abs().topk(MOST_POSITIONS).indices].sort().values
    return Offsets(
        described(got),
        "steps" if expected.quantized else "values",
        total,
        len(where),
        tuple(kept.tolist()),
        tuple(_rounded(value) for value in off[kept].tolist()),
        tuple(kept[tied[kept]].tolist()) if expected.quantized else (),
        _histogram(off[where]),
        golden,
        codes,
    )


def _rounded(value: float) -> float:
    """Six figures are more than a plot shows; whole steps stay whole."""
    return int(value) if value == int(value) and abs(value) < 2**31 else float(f"{value:.6g}")


def _histogram(off: Tensor) -> tuple[tuple[float, int], ...]:
    """Every distinct offset with its count, or equal bins if there are more distinct ones than BINS and not all are whole."""
    values, count = torch.unique(off, return_counts=True)
    if len(values) > BINS and bool((values != values.round()).any()):
        low, high = float(values[0]), float(values[-1])
        width = (high - low) / BINS
        numbers = ((off - low) / width).long().clamp(max=BINS - 1)
        count = numbers.bincount(minlength=BINS)
        values = low + width * (torch.arange(BINS) + 0.5)
        values, count = values[count > 0], count[count > 0]
    return tuple((_rounded(value), number) for value, number in zip(values.tolist(), count.tolist(), strict=True))


def _digest(codes: Tensor, scale: float, zero_point: int) -> str:
    body = codes.contiguous().to(torch.float64).numpy().tobytes()
    return hashlib.blake2b(body + f"{scale!r} {zero_point}".encode(), digest_size=8).hexdigest()
