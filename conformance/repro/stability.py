"""Renderers of findings about repetitions of the execution, and about writes to inputs."""

from collections.abc import Iterator

from conformance.results.findings import Finding
from conformance.results.findings.stability import RepetitionShape, RepetitionValues, WritesToInput
from conformance.results.findings.stages import Raises

from .case import Case, Once, Renderer, guarded
from .inline import CHANNELS_LAST, LOADED

REPETITIONS = {
    "second run": "with fresh_memory_holds(0xAA):\n    again = tensors(lowered(*inputs()))\n",
    "another call": (
        "written = [y if trace.source(y) is None else trace.source(y) for y in outputs]\n"
        "outputs = [y.dequantize().clone() for y in outputs]\n"
        "lowered(*[x.flip(tuple(range(x.dim()))) if x.is_floating_point() else x for x in inputs()])\n"
        "again = written  # after another call\n"
    ),
    "state_dict": f"{LOADED}again = tensors(other(*inputs()))\n",
    "torch.jit": "again = tensors(scripted(lowered)(*inputs()))\n",
    "channels_last": f"{CHANNELS_LAST}with fresh_memory_holds(0xAA):\n    again = tensors(lowered(*channels_last))\n",
}
"""The lines of each repetition, which leave its outputs in `again`."""


def _lines(case: Case, repetition: str) -> str:
    return REPETITIONS[repetition].replace("{levels}", str(case.run.recipe.weight_levels))


def _raised(case: Case, finding: Raises) -> Iterator[str]:
    yield guarded(finding.check, finding.stage, _lines(case, finding.stage))


def _changed(case: Case, finding: RepetitionShape | RepetitionValues) -> Iterator[str]:
    name = finding.repetition
    yield (
        f"{_lines(case, name)}if not all(torch.equal(a.dequantize(), b.dequantize()) for a, b in zip(outputs, again)):\n"
        f'    deviates("{finding.check}", "{name} changes the outputs")\n'
    )


def _writes(case: Case, finding: WritesToInput) -> Iterator[str]:
    if finding.kernel is None:
        yield Once(
            "given = inputs()\nlowered(*given)\nif not all(map(torch.equal, given, inputs())):\n"
            f'    deviates("{finding.check}", "the program writes to its inputs")\n'
        )
        return
    yield Once(
        "with Writes() as writes:\n    lowered(*inputs())\n"
        f'if writes.found:\n    deviates("{finding.check}", f"{{writes.found}}")\n'
    )


RENDERERS: dict[type[Finding], Renderer] = {
    RepetitionShape: _changed,
    RepetitionValues: _changed,
    WritesToInput: _writes,
}
"""Renderers of findings about repetitions and writes."""

RAISES: dict[type[Finding], Renderer] = {Raises: _raised}
"""The renderer of a repetition that raises; `setup` has that of the other stages."""
