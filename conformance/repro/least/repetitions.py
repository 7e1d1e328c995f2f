"""Symptoms of executions that have to agree: a second one, one after a state_dict round trip, one in another layout."""

from collections.abc import Iterator
from typing import Any

from conformance.properties.metamorphic import relations
from conformance.results.findings import Finding
from conformance.results.findings.relations import RelationWrites
from conformance.results.findings.stability import WritesToInput
from conformance.results.findings.stages import Raises

from .candidate import Candidate
from .lines import LeastFxLines, least_lines
from .symptoms import Symptom, guarded, output_paths, raised_alike
from .text import ending, with_class

SECOND, ANOTHER, STATE, LAYOUT, SCRIPTED, WRITES = "second", "another", "state", "layout", "scripted", "writes"
LOADED = "loaded"

WAYS = {
    "second run": SECOND,
    "another call": ANOTHER,
    "state_dict": STATE,
    "torch.jit": SCRIPTED,
    "channels_last": LAYOUT,
    relations.SECOND_CALL: SECOND,
    relations.STATE_DICT: STATE,
    relations.CHANNELS_LAST: LAYOUT,
    relations.TORCH_LOAD: LOADED,
    relations.INPUTS_KEPT: WRITES,
}
"""Ways to execute again by the names that repetitions of runs and metamorphic relations have in findings."""

TITLES = {
    SECOND: "a second call gives other values",
    ANOTHER: "another call overwrites the output",
    STATE: "a state_dict round trip changes the output",
    LAYOUT: "channels_last inputs change the output",
    SCRIPTED: "torch.jit changes the output",
    LOADED: "torch.load does not read what torch.save has written",
    WRITES: "a call writes to its inputs",
}


def way_of(finding: Finding) -> str | None:
    """The way to execute again that a finding is about, or None."""
    if finding.kind in ("writes-to-input", "relation-writes"):
        return WRITES
    names = (getattr(finding, name, None) for name in ("repetition", "relation", "stage"))
    return next((WAYS[name] for name in names if name in WAYS), None)


TRACE = """\
class Writes(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
        before = [x.clone() for x in given]
        result = func(*args, **(kwargs or {}))
        got.extend(f"{func} writes to its tensor {i}" for i, x in enumerate(given) if not x.equal(before[i]))
        return result
"""


def kernels_of(finding: Finding) -> list[str]:
    """The kernels, with the number of a tensor, that a finding says write to that argument: empty for the whole program."""
    if isinstance(finding, RelationWrites):
        return [write.kernel for write in finding.kernels]
    return [finding.kernel] if isinstance(finding, WritesToInput) and finding.kernel else []


class Repeating(Symptom[Finding]):
    """A repetition of the execution gives another result, or raises."""

    data_matter = True

    @property
    def way(self) -> str:
        way = way_of(self.finding)
        assert way is not None
        return way

    @property
    def values_matter(self) -> bool:
        return self.way != WRITES and not self.raises

    @property
    def names_operator(self) -> bool:
        return bool(kernels_of(self.finding))

    @property
    def raises(self) -> bool:
        return self.finding.kind == "raises"

    @property
    def title(self) -> str:
        if isinstance(self.finding, Raises):
            return f"{self.finding.stage} raises {self.finding.exception}"
        return TITLES[self.way]

    @property
    def expectation(self) -> str:
        if self.raises:
            return "Expected: no exception."
        return "Expected: the inputs stay as they are." if self.way == WRITES else "Expected: both outputs are equal."

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        source = least_lines(self.run, candidate)
        for kernel in kernels_of(self.finding):
            lines = with_class(TRACE, source.lowered)
            for given in (source.arguments(), source.in_channels_last()):
                call = f'expected, got = "no write", []\nwith Writes():\n    lowered({given})\n'
                condition = f'any("{kernel}" in one for one in got)'
                yield lines + call + ending(self.check, condition, "a kernel writes to its input")
            return
        lines = source.lowered + source.perturb + source.perturbed(0x55)
        if self.raises:
            for again in (*self._stored(), *self._again(source)):
                # what a call gives is not bound, because a script that raises nothing has "no exception"
                yield lines + guarded(self.check, again.format("").replace("got = ", ""))
            return
        if self.way == WRITES:
            first = f"expected = {candidate.operands[self._written]}.clone()\n"
            for again in self._again(source):
                yield lines + first + again + ending(self.check, "not torch.equal(got, expected)", "the input")
            return
        first = f"expected = lowered({source.arguments()}){{0}}\n"
        if self.way == ANOTHER:
            first = f"output = lowered({source.arguments()}){{0}}\nexpected = output.clone()\n"
        for path in output_paths(self.run, candidate):
            for again in self._again(source):
                condition = "not torch.equal(got, expected)"
                yield lines + (first + again).format(path) + ending(self.check, condition, "the outputs")

    @property
    def _written(self) -> int:
        """The number of an input that a call writes to."""
        inputs = getattr(self.finding, "inputs", ())
        if inputs:
            return int(inputs[0])
        argument = getattr(self.finding, "argument", 0)
        return min(int(argument), len(self.run.model.operands) - 1)

    def _stored(self) -> Iterator[str]:
        """The lines that only store a model, without loading it."""
        if self.way == STATE:
            yield "torch.save(lowered.state_dict(), io.BytesIO())\n"
        if self.way == SCRIPTED:
            yield "torch.jit.save(torch.jit.script(lowered), io.BytesIO())\n"

    def _again(self, lines: LeastFxLines) -> Iterator[str]:
        """Yield lines that bind `got`, the shortest first; none if the candidate cannot be executed in this way."""
        candidate, given, memory = lines.candidate, lines.arguments(), lines.perturbed(0xAA)
        if self.way == STATE:
            yield from self._reloaded(lines, given)
        elif self.way == ANOTHER:
            yield f"lowered({', '.join(f'-{name}' for name in candidate.operands)})\ngot = output\n"
        elif self.way == SCRIPTED:
            yield f"got = torch.jit.script(lowered)({given}){{0}}\n"
            yield (
                "saved = io.BytesIO()\ntorch.jit.save(torch.jit.script(lowered), saved)\nsaved.seek(0)\n"
                f"got = torch.jit.load(saved)({given}){{0}}\n"
            )
        elif self.way == LOADED:
            yield (
                "torch.save(lowered.state_dict(), saved := io.BytesIO())\nsaved.seek(0)\ntorch.load(saved)\n"
                f"got = lowered({given}){{0}}\n"
            )
        elif self.way == WRITES:
            yield f"lowered({given})\ngot = {candidate.operands[self._written]}\n"
        elif self.way == SECOND:
            yield f"{memory}got = lowered({given}){{0}}\n"
        elif lines.in_channels_last() != ", ".join(candidate.operands):
            yield f"{memory}got = lowered({lines.in_channels_last()}){{0}}\n"

    def _reloaded(self, source: LeastFxLines, given: str) -> Iterator[str]:
        """Lines that execute a model, lowered without calibration, which has loaded the state of the other."""
        candidate = source.candidate
        model = "model = Model()" if candidate.model_source else candidate.model_lines.split("\nfor ")[0].rstrip()
        mode, after = ("", ".eval()") if self.run.flow == "qat" else (".eval()", "")
        lines = f"{model}{mode}\n{source.prepare()}other = convert_fx(prepared{after}, backend_config=config)\n"
        got = f"got = other({given}){{0}}\n"
        yield f"{lines}other.load_state_dict(lowered.state_dict())\n{got}"
        yield (
            f"{lines}saved = io.BytesIO()\ntorch.save(lowered.state_dict(), saved)\nsaved.seek(0)\n"
            f"other.load_state_dict(torch.load(saved, weights_only=False))\n{got}"
        )

    def confirms(self, scope: dict[str, Any]) -> bool:
        return not isinstance(self.finding, Raises) or raised_alike(self.finding, scope)
