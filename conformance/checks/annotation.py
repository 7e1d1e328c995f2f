"""The check of what a quantizer annotates: the declared pattern, on the right edges, with the specs of its configuration."""

from collections.abc import Iterable, Iterator

from torch.ao.quantization.backend_config import ObservationType
from torch.fx import GraphModule

from conformance.cases.quantizers import INTEGERS
from conformance.cases.runs import Run
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
    if evidence.run.variant_has_other_operators:
        return skip("the model has operators beside the pattern")
    return outcome(_findings(evidence.run, graph))


def _findings(run: Run, graph: GraphModule) -> Iterator[Finding]:
    operators: tuple[Annotated, ...] = graph.meta[ANNOTATIONS]
    scheme, last = run.recipe.scheme, operators[-1]
    assert scheme.activation is not None
    shares = run.claim.entry.observation_type is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
    dynamic = scheme.kind == "dynamic"
    expected = _grid(scheme.activation, dynamic=dynamic)
    for name in (name for name, spec in run.model.operands if spec.kind == "activation"):
        yield from _edges(operators, name, INPUT, (expected, SHARED) if shares else (expected,))
    if scheme.weight is not None:
        layer = operators[0].parameters  # a norm behind it has a weight too
        for name in (name for name, target in layer.items() if target.rpartition(".")[2] == "weight"):
            yield from _edges(operators, name, WEIGHT, (_grid(scheme.weight),))
    yield from _output(last, dynamic=dynamic, expected=SHARED if shares else expected)
    for one in operators[:-1]:
        if one.output:
            yield AnnotatedBeside(CHECK, INNER, one.name, one.output)


def _edges(operators: Iterable[Annotated], source: str, place: str, expected: tuple[str, ...]) -> Iterator[Finding]:
    """Yield a finding unless every operator that reads a node has an annotation for it among the expected ones."""
    for got in dict.fromkeys(one.inputs[source] for one in operators if source in one.inputs):
        if not got:
            yield NotAnnotated(CHECK, place, source)
        elif got not in expected:
            yield AnnotatedOtherwise(CHECK, place, source, got, expected)


def _output(last: Annotated, *, dynamic: bool, expected: str) -> Iterator[Finding]:
    if dynamic and last.output:
        yield AnnotatedBeside(CHECK, OUTPUT, last.name, last.output)
    elif not dynamic and not last.output:
        yield NotAnnotated(CHECK, OUTPUT, last.name)
    elif not dynamic and last.output != expected:
        yield AnnotatedOtherwise(CHECK, OUTPUT, last.name, last.output, (expected,))


def _grid(grid: Grid, *, dynamic: bool = False) -> str:
    return described(INTEGERS[grid.dtype], grid.low, grid.high, grid.axis, dynamic=dynamic)
