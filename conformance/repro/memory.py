"""Renderers of findings about accesses outside of tensors. Such a script has the guard of memory, which it compiles."""

from collections.abc import Iterator

from conformance.results.findings import Finding
from conformance.results.findings.memory import OutOfBounds

from .case import Case, Once, Renderer


def accesses(check: str) -> str:
    """The block that lowers and executes the model with each side of every tensor guarded."""
    return f"""\
for side in PLACEMENTS:
    given = inputs()
    with guarded(side) as scope:  # packs the weights into guarded memory, too
        lowered = convert_fx(copy.deepcopy(prepared), backend_config=backend_config)
        lowered(*[x.clone() for x in given])
    for access in sorted(scope.taken()):
        deviates("{check}", f"out of bounds: {{access}}")
"""


def _accessed(case: Case, finding: OutOfBounds) -> Iterator[str]:
    yield Once(accesses(finding.check))


RENDERERS: dict[type[Finding], Renderer] = {OutOfBounds: _accessed}
"""Renderers of findings about memory."""
