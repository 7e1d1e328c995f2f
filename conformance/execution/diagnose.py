"""Diagnostics of a run: models, kernels and exceptions as texts by title, and the distribution of its errors."""

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
from conformance.checks.judge import vary
from conformance.configs.workflows import Workflow
from conformance.engines.registry import engine
from conformance.errors import brief
from conformance.goldens.golden import Expected
from conformance.models import apis, build, fx
from conformance.models.observers import is_observer
from conformance.models.trace import Execution, Output
from conformance.properties.metamorphic import callables
from conformance.results.constraints import DOCUMENTED
from conformance.results.diagnostics import MOST_POSITIONS, NO_MATCH, Details, Offsets
from conformance.results.profiles import LAWS
from conformance.results.rows import Row

PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)
BINS = 41
"""Bins of a histogram of float values."""


def details(evidence: Evidence, row: Row) -> Details:
    """All diagnostics of a judged case but its reproduction. Outputs that differ from run to run have no offsets."""
    texts: dict[str, str] = {}
    back = evidence.back
    if row.failed and evidence.quantized is not None:
        texts |= {**setting(evidence.run), "quantized model": str(evidence.quantized)}
    elif row.failed:
        texts |= {**setting(evidence.run), **graphs(evidence.front.prepared, evidence.reference.model, back.lowered)}
    if back.execution is not None:
        texts |= executed(back.execution)
    return Details(row.id, {**texts, **raised(evidence)}, () if vary(row.findings) else outputs(evidence, row))


def setting(run: Run) -> dict[str, str]:
    """The inputs of a run: the source of its model, and its QConfig and config or the constraint that it tests."""
    assert run.variant is not None
    model = {"model": run.model.source}
    if run.constraint is not None:
        side, field = run.constraint.side, run.constraint.field
        return {**model, "constraint": f"{side}: {of_side(run.claim.dtypes, side)}\n{field}: {DOCUMENTED[field]}"}
    recipe = run.recipe
    return {**model, "quantization": f"qconfig = {recipe.qconfig}\nmapping = {recipe.mapping}\n{run.backend.source}"}


def converted(run: Run) -> dict[str, str]:
    """Models of a run up to the lowered one, which is not executed, and the exception of the first stage that raises."""
    if isinstance(run.claim.entry, Workflow):
        return {}
    prepared = reference = lowered = None
    exception, api = {}, apis.of(run.backend)
    with engine(run.engine).scope(), fx.quiet():
        try:
            subject = callables.subject(run) if run.profile == LAWS.name else build.subject(run)
            prepared = api.prepare(subject)
            api.calibrate(prepared, subject)
            reference = api.reference(prepared, run.backend.config)
            lowered = engine(run.engine).convert(prepared, run.backend.config)
        except Exception as error:  # any exception of torch is part of the diagnostics
            exception = {"raised": brief(error)}
    return {**graphs(prepared, reference, lowered), **exception}


def graphs(
    prepared: GraphModule | None = None, reference: GraphModule | None = None, lowered: GraphModule | None = None
) -> dict[str, str]:
    """Graphs of the three models with the modules that they call, and the quantization parameters."""
    texts = {}
    for title, graph in (("observed", prepared), ("reference", reference), ("lowered", lowered)):
        if graph is None:
            texts[f"{title} model"] = "none: an earlier stage failed"
            continue
        texts[f"{title} model"] = "\n".join([str(graph.graph).strip(), *_modules(graph)])
        if title == "observed":
            texts["observers"] = "\n".join(_observers(graph)) or "none"
        if title == "reference":
            texts["quantization parameters of the reference model"] = "\n".join(_qparams(graph)) or "none"
    return texts


def executed(execution: Execution) -> dict[str, str]:
    """The kernels of an execution, and the conversions inside of them."""
    marks = (
        f"{'quantized' if k.quantized else 'float    ' if k.in_float else '         '}  {k.name}"
        for k in execution.kernels
    )
    return {
        "kernels in order": "\n".join(marks) or "none",
        "conversions inside of kernels": "\n".join(execution.nested) or "none",
    }


def raised(evidence: Evidence) -> dict[str, str]:
    """The exceptions of the stages that failed."""
    failures = "\n".join(f"{stage}: {failure.text}" for stage, failure in evidence.failures.items())
    return {"raised": failures} if failures else {}


def _modules(graph: GraphModule) -> Iterator[str]:
    for name, module in graph.named_children():
        if not is_observer(module):
            yield f"    {name}: {_described(module)}"


def _described(module: nn.Module) -> str:
    """The first line of a module's repr. Some modules unpack their weights for it, which raises on some engines."""
    try:
        return str(module).splitlines()[0]
    except Exception as error:
        return f"{type(module).__name__}, which cannot describe itself: {brief(error)}"


def _observers(graph: GraphModule) -> Iterator[str]:
    for name, module in graph.named_modules():
        observer: Any = module
        if is_observer(observer):
            line = f"{name}: {type(observer).__name__} {dtype_name(observer.dtype)}"
            line += f" [{getattr(observer, 'quant_min', None)}, {getattr(observer, 'quant_max', None)}]"
            try:
                scale, zero_point = observer.calculate_qparams()
                line += f" scale {_numbers(scale)} zero point {_numbers(zero_point)}"
            except Exception as error:  # placeholder observers raise several types
                line += f" without scale ({type(error).__name__})"
            yield line


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
    """An output as text: dtype, shape, scale and zero point."""
    q, shape = output.quantized, tuple(output.values.shape)
    if q is None:
        return f"{dtype_name(output.values.dtype)} {shape}"
    if q.qscheme() not in PER_TENSOR:
        return f"{dtype_name(q.dtype)} {shape} {str(q.qscheme()).removeprefix('torch.')}"
    return f"{dtype_name(q.dtype)} {shape} scale {q.q_scale()!r} zero point {q.q_zero_point()}"


def outputs(evidence: Evidence, row: Row) -> tuple[Offsets, ...]:
    """The distance of each of the engine's outputs from the golden's, for the further inputs of its findings
    if they are about those; empty without an execution or a golden."""
    golden, execution = evidence.expectation.golden, evidence.back.execution
    for further in evidence.further:
        if {*further.findings("numerics")} <= {*row.findings}:
            golden, execution = further.expectation.golden, further.execution
    if golden is None or execution is None:
        return ()
    return tuple(offsets(got, expected) for got, expected in zip(execution.outputs, golden.outputs, strict=False))


def offsets(got: Output, expected: Expected) -> Offsets:
    """The distance of one output from its golden: in steps from the code that rounds half to even, or in values."""
    total, q, codes = expected.low.numel(), got.quantized, ""
    golden, unit = (
        _digest(expected.code, expected.scale, expected.zero_point),
        "steps" if expected.quantized else "values",
    )
    if got.values.shape != expected.low.shape:
        return Offsets(described(got), NO_MATCH, total, total, golden=golden)
    if q is None or q.qscheme() not in PER_TENSOR:
        values = got.values.double()
    else:
        integers, grid = q.int_repr(), (q.q_scale(), q.q_zero_point())
        of_golden = integers.dtype == expected.code.dtype and grid == (expected.scale, expected.zero_point)
        if of_golden and torch.equal(integers, expected.code):
            return Offsets(described(got), unit, total, 0, golden=golden, codes=golden)
        # the golden's values are computed like this too, so equal codes on equal grids give equal values, bit for bit
        values, codes = (integers.double() - grid[1]) * grid[0], _digest(integers, *grid)
    off = (values - expected.values).flatten()
    if not bool(off.any()):
        return Offsets(described(got), unit, total, 0, golden=golden, codes=codes)
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
        unit,
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
    """A value rounded to six figures, which is more than a plot shows; whole steps stay integers."""
    return int(value) if value == int(value) and abs(value) < 2**31 else float(f"{value:.6g}")


def _histogram(off: Tensor) -> tuple[tuple[float, int], ...]:
    """Distinct offsets with their counts, or bins of equal width if more than BINS are distinct and some are fractional."""
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
