"""Renderers of findings about annotations."""

from collections.abc import Iterator

from conformance.results.findings import Finding
from conformance.results.findings.annotations import (
    INPUT,
    WEIGHT,
    AnnotatedBeside,
    AnnotatedOtherwise,
    NotAnnotated,
)

from .case import Case, Once, Renderer

ANNOTATED = Once(
    "annotated = [_annotated(node) for node in annotate().graph.nodes if node.op == 'call_function']\n"
    "for one in annotated:\n"
    "    print(one)\n"
)


def _at(finding: NotAnnotated | AnnotatedOtherwise | AnnotatedBeside, got: str) -> str:
    """The expression that holds if some operator has this annotation at the place of a finding."""
    if finding.place in (INPUT, WEIGHT):
        return f"any(one.inputs.get({finding.node!r}) == {got!r} for one in annotated)"
    return f"any(one.name == {finding.node!r} and one.output == {got!r} for one in annotated)"


def _shown(case: Case, finding: NotAnnotated | AnnotatedOtherwise | AnnotatedBeside) -> Iterator[str]:
    yield ANNOTATED
    got = "" if isinstance(finding, NotAnnotated) else finding.got
    yield f"if {_at(finding, got)}:\n    deviates({finding.check!r}, {finding.text!r})\n"


RENDERERS: dict[type[Finding], Renderer] = dict.fromkeys((NotAnnotated, AnnotatedOtherwise, AnnotatedBeside), _shown)
"""Renderers of findings about annotations."""
