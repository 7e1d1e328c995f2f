"""Everything about one run as text: sources, graphs, quantization parameters, kernels, numbers, checks, ledger."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor
from torch.fx import GraphModule

from . import forms, laws, pipeline
from .cases import Run
from .checks import CHECKS, Evidence, is_observer
from .comparison import compare_outputs
from .engines import engine
from .golden import Expected
from .isolation import Done, Raised, run_isolated
from .judge import Judge, brief
from .ledger import Entry
from .quantization import dtype_name
from .session import warm_up
from .tolerances import tolerance
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
    if run.profile == "laws":
        row = laws.row(Judge(), run)
        checked = (f"{name:<12}{result}" for name, result in row.checks.items())
        kernels = section("kernels", "\n".join(row.kernels) or "none")
        return "\n".join([converted(run), kernels, section("checks", "\n".join([*checked, row.detail]))])
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
    """Take a run to the lowered model and no further: what there is to see of one that crashes, or that raises on the way."""
    evidence = Evidence(run)
    parts = []
    with engine(run.engine).scope(), pipeline.quiet():
        try:
            given = forms.subject(run) if run.profile == "laws" else pipeline.subject(run)
            evidence.prepared = pipeline.prepare(given, run.backend.config)
            pipeline.calibrate(evidence.prepared, given)
            evidence.reference = pipeline.reference(evidence.prepared, run.backend.config)
            evidence.lowered = engine(run.engine).convert(evidence.prepared, run.backend.config)
        except Exception as error:  # whatever torch raises is what there is to see
            parts.append(section("raised", brief(error)))
    return "\n".join([*graphs(evidence), *parts])


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
    """For each output what the golden has, what engine and reference model gave, and the first elements that differ."""
    if evidence.golden is None:
        yield section("golden", evidence.unusable or "none: there is nothing to compute")
        return
    for number, expected in enumerate(evidence.golden.outputs):
        grid = f" scale {expected.scale!r} zero point {expected.zero_point}" if expected.quantized else ""
        lines = [f"golden:    {expected.dtype} {tuple(expected.low.shape)}{grid}"]
        for name, execution in (("engine", evidence.execution), ("reference", evidence.reference_execution)):
            if execution is None or number >= len(execution.outputs):
                continue
            got = execution.outputs[number]
            lines.append(f"{name + ':':<11}{_describe(got)}")
            if got.values.shape == expected.low.shape:
                lines += differences(evidence.run, got, expected, evidence.exact(number))
        yield section(f"output {number}", "\n".join(lines))


def _describe(output: Output) -> str:
    q, shape = output.quantized, tuple(output.values.shape)
    if q is None:
        return f"{dtype_name(output.values.dtype)} {shape}"
    return f"{dtype_name(q.dtype)} {shape} scale {q.q_scale()!r} zero point {q.q_zero_point()}"


def differences(run: Run, got: Output, expected: Expected, exact: Tensor | None) -> list[str]:
    """A table of the first elements that differ: index, got, golden, exact; codes where both have the same grid."""
    found = compare_outputs(got, expected, tolerance(run))
    if not found.mismatched:
        return [f"none of {found.total} elements differs; {found.ties} ties, {found.tolerated} within the tolerance"]
    q = got.quantized
    same_grid = q is not None and (q.q_scale(), q.q_zero_point()) == (expected.scale, expected.zero_point)
    if same_grid and q is not None:
        values, wanted = q.int_repr().double(), expected.low.double()
        where = ((values < wanted) | (values > expected.high.double())).nonzero()
        exact = wanted if exact is None else exact
    else:
        values, wanted = got.values.double(), expected.values
        where, exact = (values != wanted).nonzero(), wanted
    table = [
        f"{found.mismatched} of {found.total} elements differ; {found.ties} ties, {found.tolerated} within the tolerance",
        f"{'index':<20}{'got':>14}{'golden':>14}{'exact':>16}",
    ]
    for row in where[:SHOWN].tolist():
        index = tuple(row)
        table.append(f"{index!s:<20}{values[index]:>14.7g}{wanted[index]:>14.7g}{exact[index]:>16.9g}")
    return table
