"""What a least script shows: one finding, as the lines after the model is prepared and the condition that it deviates.

A symptom writes the body of a candidate's script, or bodies of which the first that deviates is the best. Symptoms are used
in a child, because most of them execute the candidate's kernels to find out what it should give.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor

from conformance.cases.runs import Run
from conformance.engines.executorch.runtime import Refused
from conformance.results.findings import Finding
from conformance.results.findings.stages import Crashes, Raises

from .candidate import Candidate
from .lines import TO_REFERENCE, least_lines
from .text import DIES, ending, executed

F = TypeVar("F", bound=Finding)


@dataclass(frozen=True)
class Symptom(ABC, Generic[F]):
    """One finding of a run. `title` is what deviates, `expectation` a sentence about what is expected instead."""

    run: Run
    finding: F

    @property
    def check(self) -> str:
        return self.finding.check

    @property
    @abstractmethod
    def title(self) -> str: ...

    @property
    @abstractmethod
    def expectation(self) -> str: ...

    @property
    def names_operator(self) -> bool:
        """Whether the deviation itself says which operator it is of, so that a model may lose any other."""
        return False

    @property
    def has_float_model(self) -> bool:
        """Whether the float model of a candidate has to accept its inputs."""
        return True

    def adapted(self, candidate: Candidate) -> Candidate:
        """The candidate with the data that the symptom needs, if it needs certain ones."""
        return candidate

    @abstractmethod
    def bodies(self, candidate: Candidate) -> Iterator[str]:
        """Yield the lines of scripts of a candidate, the best first; none if it does not deviate in this way."""

    @property
    def data_matter(self) -> bool:
        """Whether the deviation depends on the values of inputs or parameters."""
        return False

    @property
    def values_matter(self) -> bool:
        """Whether the script states or compares values of outputs, so that parameters have to be the same every time."""
        return self.data_matter

    def confirms(self, scope: dict[str, Any]) -> bool:
        """Whether a script that deviates does so in this way, by the names that it has bound."""
        return True


FIGURES = str.maketrans("", "", "0123456789.-")
"""A translation that deletes figures, because messages name the sizes of tensors."""

TITLES = {
    "float": "the float model raises",
    "prepare": "prepare raises",
    "calibrate": "the observed model raises",
    "reference": "convert_to_reference_fx raises",
    "reference execution": "the reference model raises",
    "lower": "convert_fx raises",
    "execute": "the lowered model raises",
}


class Raising(Symptom[Raises]):
    """A stage raises an exception."""

    @property
    def title(self) -> str:
        return f"{TITLES[self.finding.stage]} {self.finding.exception}"

    expectation = "Expected: no exception."
    names_operator = True

    @property
    def has_float_model(self) -> bool:
        return self.finding.stage != "float"

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        lines, stage = least_lines(self.run, candidate), self.finding.stage
        if stage == "float":  # a float model needs neither mapping nor config
            kept = [
                line
                for line in lines.setting.splitlines()
                if not line.startswith(("mapping =", "config =", "quantizer ="))
            ]
            call = f"{lines.model}model({lines.arguments()})\n"
            yield "\n".join(kept) + "\n" + guarded(self.check, call)
            return
        stages = {"prepare": lines.prepare(), "calibrate": lines.calibrate}
        if stage.startswith("reference"):
            reference = {"reference": f"reference = {TO_REFERENCE}"}
            stages |= {**reference, "reference execution": f"reference({lines.arguments()})\n"}
        else:
            stages |= {"lower": lines.lower, "execute": f"lowered({lines.arguments()})\n"}
        before = [*stages.values()][: [*stages].index(stage)]
        yield lines.built + "".join(before) + guarded(self.check, stages[stage])

    def confirms(self, scope: dict[str, Any]) -> bool:
        return raised_alike(self.finding, scope)


BEGINNING = 80
"""Characters of an exception's message that say which one it is, without figures."""


def raised_alike(finding: Raises, scope: dict[str, Any]) -> bool:
    """Whether a script has caught the exception of a finding, but for figures in its message."""
    got, wanted = str(scope.get("got")), f"{finding.exception}: {finding.message}"
    if finding.exception == Refused.__name__:  # what ExecuTorch raises, between the stage and a line of its log
        return finding.message.partition(": ")[2].translate(FIGURES).startswith(got.translate(FIGURES)[:BEGINNING])
    return got.translate(FIGURES)[:BEGINNING] == wanted.translate(FIGURES)[:BEGINNING]


def guarded(check: str, lines: str) -> str:
    """Lines that should raise no exception, with the ending that says so."""
    inner = "".join(f"    {line}\n" for line in lines.splitlines())
    return (
        f'expected = got = "no exception"\ntry:\n{inner}'
        'except Exception as error:\n    got = f"{type(error).__name__}: {error}"[:200]\n'
        + ending(check, "got != expected", "an exception")
    )


def float_model_accepts(run: Run, candidate: Candidate) -> bool:
    """Whether the float model of a candidate accepts its inputs and has outputs."""
    try:
        _float_output(run, candidate)
    except Exception:  # a float model refuses sizes with exceptions of many types; no quantized kernel runs here
        return False
    return True


def output_paths(run: Run, candidate: Candidate) -> list[str]:
    """The subscripts of each tensor in what a candidate's float model returns."""
    return [*paths(_float_output(run, candidate))]


def _float_output(run: Run, candidate: Candidate) -> Any:
    """What the float model of a candidate returns."""
    lines = least_lines(run, candidate)
    body = f"{lines.setting}{candidate.model_lines}model.eval()\ny = model({lines.arguments()})\n"
    return executed(body)[1]["y"]


def paths(value: Any) -> Iterator[str]:
    """The subscripts of each tensor in nested tuples, in order."""
    if isinstance(value, Tensor):
        yield ""
    elif isinstance(value, tuple | list):
        for position, part in enumerate(value):
            yield from (f"[{position}]{rest}" for rest in paths(part))


class Crashing(Symptom[Crashes]):
    """The process dies."""

    title = "the lowered model ends the process"
    expectation = "Expected: a result, or an exception."

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        if not float_model_accepts(self.run, candidate):
            return
        lines = least_lines(self.run, candidate)
        call = f"lowered({lines.arguments()})\n"
        yield (
            f'{lines.lowered}print("expected: a result, or an exception")\nprint("{DIES}", flush=True)\n'
            f"{lines.perturb}{lines.perturbed(0x55)}{call}"
            f"{(lines.perturbed(0xAA) + call) if candidate.perturbed else ''}"
            'print("CONFORMS")\n'
        )
