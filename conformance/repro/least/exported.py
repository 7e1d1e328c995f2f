"""Symptoms of models that are exported: the lowered model is held to the converted one, which states how it computes."""

from collections.abc import Iterator
from typing import Any

from conformance.engines.programs import PROGRAMS, WITH_CODES
from conformance.results.findings import Finding
from conformance.results.findings.annotations import AnnotatedBeside
from conformance.results.findings.structure import RanInFloat
from conformance.results.findings.values import OutputShape

from .candidate import Candidate, number
from .lines import LeastPt2eLines, steps
from .structure import InFloat
from .symptoms import Symptom, output_paths
from .text import ending, executed
from .values import STEPS

PORTABLE = "portable."
"""The beginning of the names of kernels outside of delegates."""
UNSCALED = 256
"""The part of the greatest result by which one without a scale may differ."""


class FarFromConverted(Symptom[Finding]):
    """The lowered model gives another result than the converted one, by more than rounding."""

    data_matter = True
    title = "the lowered model gives other values than the converted one"
    expectation = "Expected: the result of the converted model, but for rounding."

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        lines = LeastPt2eLines(self.run, candidate)
        given = lines.arguments()
        form, differ = "{}", ""
        if isinstance(self.finding, OutputShape):
            form, differ = "tuple({}.shape)", "got != expected"
        paths = output_paths(self.run, candidate)
        for place, (path, step) in enumerate(
            zip(paths, steps(executed(lines.converted)[1]["converted"]), strict=False)
        ):
            bound = f"expected.abs().max() / {UNSCALED}"
            if step is not None:
                bound = f"{number(float(f'{STEPS * step:.2g}'))}  # {STEPS} steps of the output"
            got = f"lowered({given})[{place}]" if lines.program.listed else f"lowered({given}){path}"
            yield (
                f"{lines.converted}expected = {form.format(f'converted({given}){path}')}\n{lines.lower_converted}"
                f"got = {form.format(got)}\n"
                + ending(
                    self.check, differ or f"(got - expected).abs().max() > {bound}", "not the converted model's result"
                )
            )


class Outside(Symptom[RanInFloat]):
    """An operator stays outside of the delegates, on float tensors."""

    title = "an operator is not delegated and computes in float"
    expectation = "Expected: the quantized operator is part of a delegate."
    names_operator = True

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        lines = LeastPt2eLines(self.run, candidate)
        edge = lines.program.edge.replace("{data}", lines.as_tuple())
        for kernel in self.finding.kernels:
            yield (
                f"{lines.converted}{edge}nodes = edge.exported_program().graph.nodes\n"
                'expected, got = "delegates", [str(one.target) for one in nodes if one.op == "call_function"]\n'
                + ending(self.check, f'any("{kernel.removeprefix(PORTABLE)}" in one for one in got)', "in float")
            )


class Annotated(Symptom[Finding]):
    """The quantizer annotates no operator of the model, or one inside of the pattern."""

    @property
    def title(self) -> str:
        if isinstance(self.finding, AnnotatedBeside):
            return "the quantizer annotates a part of the operator"
        return "the quantizer does not annotate the operator"

    @property
    def expectation(self) -> str:
        return f"Expected: {self._expected}."

    @property
    def _expected(self) -> str:
        return f"no {self.finding.node}" if isinstance(self.finding, AnnotatedBeside) else "an annotation"

    names_operator = True

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        lines = LeastPt2eLines(self.run, candidate)
        yield (
            f"{lines.built}{lines.export}"
            "annotated = quantizer.annotate(quantizer.transform_for_annotation(exported))\n"
            "nodes = annotated.graph.nodes\n"
            f'expected, got = "{self._expected}", [one.name for one in nodes if "quantization_annotation" in one.meta]\n'
            + ending(self.check, *self._wrong)
        )

    @property
    def _wrong(self) -> tuple[str, str]:
        """The condition that it deviates, and what then is wrong."""
        if isinstance(self.finding, AnnotatedBeside):
            return f'"{self.finding.node}" in got', "a part of the operator is annotated"
        return "not got", "nothing is annotated"


def left_in_float(engine: str) -> type[Symptom[Any]] | None:
    """The symptom of kernels on floats, by the engine; None for one that shows neither operators nor delegates."""
    program = PROGRAMS[engine]
    return InFloat if program.execute == WITH_CODES else Outside if program.edge else None
