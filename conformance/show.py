"""Everything about one run as text: sources, graphs, quantization parameters, kernels, numbers, checks, ledger."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from . import pipeline
from .cases import Run
from .checks import CHECKS, Evidence, is_observer
from .engines import engine
from .isolation import Done, Raised, run_isolated
from .judge import Judge
from .ledger import Entry
from .models import root_of
from .quantization import dtype_name
from .session import warm_up
from .tolerances import TIE_BAND, tolerance
from .trace import Output

SHOWN = 10
"""Mismatching elements shown of each output."""


def section(title: str, text: str) -> str:
    return f"== {title}\n{text.rstrip()}\n"


def show(run: Run, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the sections of a run in order.

    Its kernels run in a child: if they take it down, what precedes them is shown. The engine has to be available and
    the operators covered.
    """
    yield run.id
    yield section("model", run.model.source)
    yield section(
        "quantization", f"qconfig = {run.recipe.qconfig}\nmapping = {run.recipe.mapping}\n{run.backend.source}"
    )
    warm_up()
    (outcome,) = run_isolated([run], executed)
    if isinstance(outcome, Done):
        yield outcome.value
    else:
        (before,) = run_isolated([run], converted)
        yield (
            before.value
            if isinstance(before, Done)
            else section("graphs", "converting the model ends the process already")
        )
        failed = outcome.traceback if isinstance(outcome, Raised) else f"the process dies: {outcome.reason}"
        yield section("the suite itself fails" if isinstance(outcome, Raised) else "crashes", failed)
    listed = [f"{e.id} ({e.source}): {', '.join(sorted(e.check))}\n{e.reason}\nupstream: {e.upstream}" for e in entries]
    yield section("ledger", "\n\n".join(listed) or "not listed")


def executed(run: Run) -> str:
    """Take a run through every stage and check, and say what came of it."""
    evidence = Judge().evidence(run)
    outcomes = {name: check(evidence) for name, check in CHECKS.items()}
    execution = evidence.execution
    parts = [*graphs(evidence)]
    if execution is not None:
        marks = (
            f"{'quantized' if k.quantized else 'float    ' if k.in_float else '         '}  {k.name}"
            for k in execution.kernels
        )
        parts.append(section("kernels in order", "\n".join(marks) or "none"))
        parts.append(section("conversions inside of kernels", "\n".join(execution.nested) or "none"))
    parts += numbers(evidence)
    if evidence.failures:
        parts.append(section("raised", "\n".join(f"{stage}: {error}" for stage, error in evidence.failures.items())))
    checked = (f"{name:<12}{one.result:<5} {one.detail}".rstrip() for name, one in outcomes.items())
    parts.append(section("checks", "\n".join(checked)))
    return "\n".join(parts)


def converted(run: Run) -> str:
    """Take a run to the lowered model and no further: what there is to see of one that crashes."""
    evidence = Evidence(run)
    with engine(run.engine).scope(), pipeline.quiet():
        given = pipeline.subject(run)
        evidence.prepared = pipeline.prepare(given, run.backend.config)
        pipeline.calibrate(evidence.prepared, given)
        evidence.reference = pipeline.reference(evidence.prepared, run.backend.config)
        evidence.lowered = pipeline.lower(evidence.prepared, run.backend.config)
    return "\n".join(graphs(evidence))


def graphs(evidence: Evidence) -> Iterator[str]:
    """The three models, each with what its graph does not tell: modules and quantization parameters."""
    for title, graph in (
        ("observed", evidence.prepared),
        ("reference", evidence.reference),
        ("lowered", evidence.lowered),
    ):
        if graph is None:
            yield section(f"{title} model", "none: an earlier stage failed")
            continue
        yield section(f"{title} model", "\n".join([str(graph.graph).strip(), *_modules(graph)]))
        if title == "observed":
            yield section("observers", "\n".join(_observers(graph)) or "none")
        if title == "reference":
            yield section("quantization parameters of the reference model", "\n".join(_qparams(graph)) or "none")


def _modules(graph: GraphModule) -> Iterator[str]:
    for name, module in graph.named_children():
        if not is_observer(module):
            yield f"    {name}: {str(module).splitlines()[0]}"


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


def numbers(evidence: Evidence) -> Iterator[str]:
    """For each output the parameters of both sides and the first elements that differ."""
    if evidence.execution is None or evidence.reference_execution is None:
        return
    pairs = zip(evidence.execution.outputs, evidence.reference_execution.outputs, strict=False)
    for number, (got, expected) in enumerate(pairs):
        lines = [f"engine:    {_describe(got)}", f"reference: {_describe(expected)}"]
        if got.values.shape == expected.values.shape:
            lines += differences(evidence.run, got, expected)
        yield section(f"output {number}", "\n".join(lines))


def _describe(output: Output) -> str:
    q, shape = output.quantized, tuple(output.values.shape)
    if q is None:
        return f"{dtype_name(output.values.dtype)} {shape}"
    return f"{dtype_name(q.dtype)} {shape} scale {q.q_scale()!r} zero point {q.q_zero_point()}"


def differences(run: Run, got: Output, expected: Output) -> list[str]:
    """A table of the first elements that differ: index, got, expected, exact; codes where both have the same grid."""
    allowed = tolerance(root_of(run.claim.tree), run)
    q, r = got.quantized, expected.quantized
    same_grid = (
        q is not None
        and r is not None
        and (q.q_scale(), q.q_zero_point(), q.dtype) == (r.q_scale(), r.q_zero_point(), r.dtype)
    )
    if same_grid and q is not None and r is not None and expected.exact is not None:
        values, wanted = q.int_repr().double(), r.int_repr().double()
        exact = expected.exact.double() / r.q_scale() + r.q_zero_point()
        limits = (0, 255) if r.dtype == torch.quint8 else (-128, 127)
        wrong = (values - exact.clamp(*limits)).abs() > 0.5 + TIE_BAND + allowed.steps
    else:
        values, wanted = got.values.double(), expected.values.double()
        exact = wanted
        bound = wanted.abs().max() if wanted.numel() else 0.0
        wrong = ~((values - wanted).abs() <= bound * max(allowed.relative, 2.0**-20))
    where = wrong.nonzero()
    if not len(where):
        return [f"no element of {wrong.numel()} differs"]
    table = [
        f"{len(where)} of {wrong.numel()} elements differ",
        f"{'index':<20}{'got':>14}{'expected':>14}{'exact':>16}",
    ]
    for row in where[:SHOWN].tolist():
        index = tuple(row)
        table.append(f"{index!s:<20}{values[index]:>14.7g}{wanted[index]:>14.7g}{exact[index]:>16.9g}")
    return table
