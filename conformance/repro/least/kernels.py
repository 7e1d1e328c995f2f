"""Symptoms of models that are not lowered to quantized kernels."""

from collections.abc import Iterator

from conformance.engines.trace import CONVERSIONS, VIEWS
from conformance.results.findings import Finding
from conformance.results.findings.structure import ConvertsInside, NoQuantizedKernel, RanInFloat

from .candidate import Candidate
from .symptoms import Symptom
from .text import arguments, ending, lower_line, prepared_lines, with_class

TRACE = """\
class Trace(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        got.append(f"{func} {[x.dtype for x in tree_leaves(args) if isinstance(x, torch.Tensor)]}")
        return func(*args, **(kwargs or {}))
"""


class InFloat(Symptom[Finding]):
    """Kernels run on float tensors, or no quantized kernel runs."""

    @property
    def title(self) -> str:
        return "the lowered model computes in float"

    @property
    def expectation(self) -> str:
        return "Expected: a quantized kernel for the whole pattern, and no operator on float tensors."

    @property
    def names_operator(self) -> bool:
        return not isinstance(self.finding, NoQuantizedKernel)

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        given = arguments(candidate)
        # tensors in lists are arguments of few operators
        for trace in (TRACE.replace("tree_leaves(args)", "args"), TRACE):
            lines = with_class(trace, prepared_lines(self.run, candidate) + lower_line(self.run, candidate))
            lines += f'expected, got = "{self._wanted}", []\nwith Trace():\n    lowered({given})\n'
            yield lines + ending(self.check, self._condition, "computes in float")

    @property
    def _wanted(self) -> str:
        return "a quantized kernel" if isinstance(self.finding, NoQuantizedKernel) else "no operator on float tensors"

    @property
    def _condition(self) -> str:
        if not isinstance(self.finding, RanInFloat):
            return 'not any("quantized" in one for one in got)'
        computing = [name for name in self.finding.kernels if name not in VIEWS and name not in CONVERSIONS]
        kernel = (computing or [*self.finding.kernels])[0]
        return f'any("{kernel}" in one and "float32" in one for one in got)'


class ConvertingInside(Symptom[ConvertsInside]):
    """A quantized kernel converts to float inside of itself."""

    @property
    def title(self) -> str:
        return "a quantized kernel computes in float"

    @property
    def expectation(self) -> str:
        return "Expected: no dequantize or quantize inside of the kernel."

    @property
    def names_operator(self) -> bool:
        return not isinstance(self.finding, NoQuantizedKernel)

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        conversion = self.finding.conversions[0].replace(".", "::")
        lines = (
            f"{prepared_lines(self.run, candidate)}{lower_line(self.run, candidate)}"
            f"with torch.autograd.profiler.profile() as profile:\n    lowered({arguments(candidate)})\n"
            "calls = [event for event in profile.function_events if event.cpu_parent]\n"
            'got = {f"{event.cpu_parent.name} > {event.name}" for event in calls}\n'
            f'expected = "no {conversion}"\n'
        )
        yield lines + ending(self.check, f'"{conversion}" in got', "converts to float")
        # a call between the kernel and the conversion is the parent; one that the model makes itself has no parent
        inner = conversion.rpartition(" > ")[2]
        yield lines + ending(self.check, f'any(one.endswith(" > {inner}") for one in got)', "converts to float")
