"""Symptoms of how a model is quantized: what has no observer or no effect, and what is not lowered to quantized kernels."""

from collections.abc import Iterator

from conformance.models.trace import CONVERSIONS, VIEWS
from conformance.repro.configs import pattern_source
from conformance.results.findings import Finding
from conformance.results.findings.structure import ConvertsInside, NoEffect, NoQuantizedKernel, NotObserved, RanInFloat

from .candidate import Candidate
from .lines import least_lines
from .symptoms import Symptom
from .text import ending, with_class

TRACE = """\
class Trace(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        got.append(f"{func} {[x.dtype for x in tree_leaves(args) if isinstance(x, torch.Tensor)]}")
        return func(*args, **(kwargs or {}))
"""


class InFloat(Symptom[Finding]):
    """Kernels run on float tensors, or no quantized kernel runs."""

    title = "the lowered model computes in float"
    expectation = "Expected: a quantized kernel for the whole pattern, and no operator on float tensors."

    @property
    def names_operator(self) -> bool:
        return not isinstance(self.finding, NoQuantizedKernel)

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        lines = least_lines(self.run, candidate)
        # tensors in lists are arguments of few operators
        for trace in (TRACE.replace("tree_leaves(args)", "args"), TRACE):
            call = f'expected, got = "{self._wanted}", []\nwith Trace():\n    lowered({lines.arguments()})\n'
            yield with_class(trace, lines.lowered) + call + ending(self.check, self._condition, "computes in float")

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

    title = "a quantized kernel computes in float"
    expectation = "Expected: no dequantize or quantize inside of the kernel."

    names_operator = True

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        given = least_lines(self.run, candidate)
        conversion = self.finding.conversions[0].replace(".", "::")
        lines = (
            f"{given.lowered}with torch.autograd.profiler.profile() as profile:\n    lowered({given.arguments()})\n"
            "calls = [event for event in profile.function_events if event.cpu_parent]\n"
            'got = {f"{event.cpu_parent.name} > {event.name}" for event in calls}\n'
            f'expected = "no {conversion}"\n'
        )
        yield lines + ending(self.check, f'"{conversion}" in got', "converts to float")
        # a call between the kernel and the conversion is the parent; one that the model makes itself has no parent
        inner = conversion.rpartition(" > ")[2]
        yield lines + ending(self.check, f'any(one.endswith(" > {inner}") for one in got)', "converts to float")


class Unobserved(Symptom[NotObserved]):
    """An input of the pattern, or its output, has no observer."""

    @property
    def title(self) -> str:
        return self.finding.text

    expectation = "Expected: an observer, which the dtype config asks for."

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        lines = least_lines(self.run, candidate)
        neighbours = "all_input_nodes" if self.finding.node is None else "users"
        name = self.finding.node or "output"
        got = (
            f'node = next(node for node in prepared.graph.nodes if node.name == "{name}")\n'
            f'expected, got = "an observer", [str(one.target) for one in node.{neighbours}]\n'
        )
        condition = 'not any("activation_post_process" in name for name in got)'
        yield lines.built + lines.prepare() + got + ending(self.check, condition, "no observer")


class Ineffective(Symptom[NoEffect]):
    """The observed and the lowered model are the same without the claim in the config."""

    title = "the entry of the pattern in the backend config has no effect"
    expectation = "Expected: without the entry, another model is observed or lowered."

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        entry = self.run.claim.entry
        attribute = "_pattern_complex_format" if entry.pattern is None else "pattern"
        if self.run.flow == "qat" or candidate.parameter_lines:
            return
        lines = least_lines(self.run, candidate)
        prepare = lines.prepare().replace("model,", f"{lines.model.strip().removeprefix('model = ')},", 1)
        yield (
            f"{lines.setting}texts = []\n"
            f"entries = [one for one in config.configs if one.{attribute} != {pattern_source(getattr(entry, attribute))}]\n"
            "assert len(entries) == len(config.configs) - 1\n"
            "for config in (config, BackendConfig().set_backend_pattern_configs(entries)):\n"
            f"    {prepare}    observed = str(prepared)\n    prepared({lines.arguments()})\n"
            "    texts.append(observed + str(convert_fx(prepared, backend_config=config)))\n"
            "expected, got = texts\n" + ending(self.check, "got == expected", "the same without the entry")
        )
