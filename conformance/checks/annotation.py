"""The check of what a quantizer annotates: the declared pattern, on the right edges, with the specs of its configuration."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from torch.ao.quantization.backend_config import ObservationType
from torch.fx import GraphModule

from conformance.cases.declarations import connected
from conformance.cases.operators.variant import ALONE
from conformance.cases.quantizers import INTEGERS
from conformance.cases.recipes import QUANTIZED
from conformance.cases.runs import Run
from conformance.configs.quantizer import Declaration
from conformance.models.pt2e import ANNOTATIONS, SHARED, Annotated, described
from conformance.oracle.scheme import Grid
from conformance.results.findings import Finding
from conformance.results.findings.annotations import (
    INNER,
    INPUT,
    OUTPUT,
    WEIGHT,
    AnnotatedBeside,
    AnnotatedOtherwise,
    NotAnnotated,
)

from .evidence import Evidence, Outcome, outcome, skip

CHECK = "annotated"


def annotated(evidence: Evidence) -> Outcome:
    """The quantizer annotates the inputs, weight and output of the pattern as the claim says, and nothing between them."""
    if findings := evidence.raises(CHECK, "float"):
        return outcome(findings)
    graph = evidence.front.prepared
    if graph is None:
        return skip("prepare failed")
    if not _pattern_is_alone(evidence.run):
        return skip("the model has operators beside the pattern")
    return outcome(_findings(evidence.run, graph))


def _findings(run: Run, graph: GraphModule) -> Iterator[Finding]:
    assert run.variant is not None
    assert isinstance(run.claim.entry, Declaration)
    every: tuple[Annotated, ...] = graph.meta[ANNOTATIONS]
    context = run.variant.context
    operators = every[len(context.before) : len(every) - len(context.after)]
    if not operators:  # nothing is left of an identity
        yield NotAnnotated(CHECK, INPUT, next(name for name, _ in run.model.operands))
        return
    scheme, last = run.recipe.scheme, operators[-1]
    shares = run.claim.entry.observation_type is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
    dynamic = scheme.kind == "dynamic"
    expected = "" if scheme.activation is None else _grid(scheme.activation, dynamic=dynamic)
    for name in _inputs(operators):
        in_float = name in run.claim.entry.floats
        yield from _edges(operators, name, INPUT, ("",) if in_float else (expected, SHARED) if shares else (expected,))
    if scheme.weight is not None or scheme.half:
        weight = "float16" if scheme.weight is None else _grid(scheme.weight)
        layer = operators[0].parameters  # a norm behind it has a weight too
        for name in (name for name, target in layer.items() if target.rpartition(".")[2] == "weight"):
            yield from _edges(operators, name, WEIGHT, (weight,))
    in_float = dynamic or run.claim.dtypes.output_dtype not in QUANTIZED
    yield from _annotation(OUTPUT, last.name, last.output, ("" if in_float else SHARED if shares else expected,))
    for one in operators[:-1]:
        if one.output:
            yield AnnotatedBeside(CHECK, INNER, one.name, one.output)


def _pattern_is_alone(run: Run) -> bool:
    """Whether a model has the pattern alone, or among the operators that its claim requires around it."""
    assert run.variant is not None
    assert isinstance(run.claim.entry, Declaration)
    bare = replace(run.variant, context=ALONE)
    return not bare.has_other_operators and run.variant.context == connected(run.claim.entry, bare).context


def _inputs(operators: Sequence[Annotated]) -> list[str]:
    """The nodes that operators read and that are neither their own results nor parameters."""
    own = {one.name for one in operators}.union(*(one.parameters for one in operators))
    return [name for name in dict.fromkeys(name for one in operators for name in one.inputs) if name not in own]


def _edges(operators: Iterable[Annotated], source: str, place: str, expected: tuple[str, ...]) -> Iterator[Finding]:
    """Yield a finding unless every operator that reads a node has an annotation for it among the expected ones."""
    for got in dict.fromkeys(one.inputs[source] for one in operators if source in one.inputs):
        yield from _annotation(place, source, got, expected)


def _annotation(place: str, name: str, got: str, expected: tuple[str, ...]) -> Iterator[Finding]:
    """Yield a finding unless an annotation is among the expected ones, which are empty text for a value in float."""
    if got in expected:
        return
    if not got:
        yield NotAnnotated(CHECK, place, name)
    elif expected == ("",):
        yield AnnotatedBeside(CHECK, place, name, got)
    else:
        yield AnnotatedOtherwise(CHECK, place, name, got, expected)


def _grid(grid: Grid, *, dynamic: bool = False) -> str:
    return described(INTEGERS[grid.dtype], grid.low, grid.high, grid.axis, dynamic=dynamic)
