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
from .text import (
    DIES,
    PERTURB,
    arguments,
    calibrate_lines,
    ending,
    executed,
    lower_line,
    model_lines,
    perturbed,
    prepare_line,
    prepared_lines,
    setting,
)

F = TypeVar("F", bound=Finding)


@dataclass(frozen=True)
class Symptom(ABC, Generic[F]):
    """One finding of a run.

    `title` is what deviates, `expectation` a sentence about what
    is expected instead.
    """

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

STAGES = ("float", "prepare", "calibrate", "lower", "execute")
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

    @property
    def expectation(self) -> str:
        return "Expected: no exception."

    @property
    def names_operator(self) -> bool:
        return True

    @property
    def has_float_model(self) -> bool:
        return self.finding.stage != "float"

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        run, given, stage = self.run, arguments(candidate), self.finding.stage
        lines = {
            "float": f"{model_lines(run, candidate)}model({given})\n",
            "prepare": prepare_line(run, candidate),
            "calibrate": calibrate_lines(run, candidate),
            "lower": lower_line(run, candidate),
            "execute": f"lowered({given})\n",
            "reference": "reference = convert_to_reference_fx(prepared, backend_config=config)\n",
            "reference execution": f"reference({given})\n",
        }
        order = ["prepare", "calibrate", "lower", "execute"]
        if stage.startswith("reference"):
            order = ["prepare", "calibrate", "reference", "reference execution"]
        if stage == "float":
            # a float model needs neither mapping nor config
            kept = [
                line
                for line in setting(run, candidate).splitlines()
                if not line.startswith(("mapping =", "config =", "quantizer ="))
            ]
            yield "\n".join(kept) + "\n" + guarded(self.check, lines[stage])
            return
        before = "".join(lines[name] for name in order[: order.index(stage)])
        model = model_lines(run, candidate)
        yield setting(run, candidate) + model + before + guarded(self.check, lines[stage])

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
        executed(f"{setting(run, candidate)}{candidate.model_lines}model.eval()\nmodel({arguments(candidate)})\n")
    except Exception:  # a float model refuses sizes with exceptions of many types; no quantized kernel runs here
        return False
    return True


def output_paths(run: Run, candidate: Candidate) -> list[str]:
    """The subscripts of each tensor in what a candidate's float model returns."""
    lines = f"{setting(run, candidate)}{candidate.model_lines}model.eval()\ny = model({arguments(candidate)})\n"
    return [*paths(executed(lines)[1]["y"])]


def paths(value: Any) -> Iterator[str]:
    """The subscripts of each tensor in nested tuples, in order."""
    if isinstance(value, Tensor):
        yield ""
    elif isinstance(value, tuple | list):
        for position, part in enumerate(value):
            yield from (f"[{position}]{rest}" for rest in paths(part))


class Crashing(Symptom[Crashes]):
    """The process dies."""

    @property
    def title(self) -> str:
        return "the lowered model ends the process"

    @property
    def expectation(self) -> str:
        return "Expected: a result, or an exception."

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        if not float_model_accepts(self.run, candidate):
            return
        call = f"lowered({arguments(candidate)})\n"
        yield (
            f"{prepared_lines(self.run, candidate)}{lower_line(self.run, candidate)}"
            'print("expected: a result, or an exception")\n'
            f'print("{DIES}", flush=True)\n'
            f"{PERTURB if candidate.perturbed else ''}{perturbed(candidate, 0x55)}{call}"
            f"{(perturbed(candidate, 0xAA) + call) if candidate.perturbed else ''}"
            'print("CONFORMS")\n'
        )
