"""Scripts about quantizers: the blocks of PT2E's flow, and the renderers of findings about annotations."""

from collections.abc import Iterator

from conformance.cases.runs import Run
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


def setting(run: Run) -> Iterator[str]:
    """Yield the lines that bind the quantizer."""
    yield f"qconfig = {run.recipe.qconfig}\n"
    yield f"quantizer = {run.recipe.mapping}\n"


def flow(run: Run) -> Iterator[str]:
    """Yield the functions that scripts call: a model that is prepared is consumed by its conversion."""
    qat = run.flow == "qat"
    yield (
        "def export():\n"
        "    return torch.export.export(copy.deepcopy(model), calibration()).module(check_guards=False)\n"
    )
    yield (
        'def annotate():\n    """The exported model with the annotations of the quantizer."""\n'
        "    return quantizer.annotate(quantizer.transform_for_annotation(export()))\n"
    )
    yield f"def prepare():\n    return {'prepare_qat_pt2e' if qat else 'prepare_pt2e'}(export(), quantizer)\n"
    frozen = "    move_exported_model_to_eval(prepared)  # freezes the statistics of norms\n" if qat else ""
    yield f"def calibrate(prepared):\n{frozen}    prepared(*calibration())\n    return prepared\n"


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
