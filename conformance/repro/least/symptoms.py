"""What a least script shows: one finding, as the lines after the model is prepared and the condition that it deviates.

A symptom writes the body of a candidate's script, or bodies of which the first that deviates is the best. Symptoms are used
in a child, because most of them execute the candidate's kernels to find out what it should give.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from conformance.cases.runs import Run
from conformance.results.findings import Finding
from conformance.results.findings.stages import Crashes, Raises

from .candidate import Candidate
from .text import (
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

    `data_matter` says whether the deviation depends on values. `title` is what deviates, `expectation` a sentence about what
    is expected instead.
    """

    run: Run
    finding: F
    data_matter: ClassVar[bool] = False

    @property
    def check(self) -> str:
        return self.finding.check

    @property
    @abstractmethod
    def title(self) -> str: ...

    @property
    @abstractmethod
    def expectation(self) -> str: ...

    @abstractmethod
    def bodies(self, candidate: Candidate) -> Iterator[str]:
        """Yield the lines of scripts of a candidate, the best first; none if it does not deviate in this way."""

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

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        if self.finding.stage != "float" and not float_model_accepts(self.run, candidate):
            return
        run, given, stage = self.run, arguments(candidate), self.finding.stage
        lines = {
            "float": f"{model_lines(run, candidate)}model({given})\n",
            "prepare": prepare_line(run, candidate),
            "calibrate": calibrate_lines(run, candidate),
            "lower": lower_line(),
            "execute": f"lowered({given})\n",
            "reference": "reference = convert_to_reference_fx(prepared, backend_config=config)\n",
            "reference execution": f"reference({given})\n",
        }
        order = ["prepare", "calibrate", "lower", "execute"]
        if stage.startswith("reference"):
            order = ["prepare", "calibrate", "reference", "reference execution"]
        if stage == "float":
            order = ["float"]
        before = "".join(lines[name] for name in order[: order.index(stage)])
        model = "" if stage == "float" else model_lines(run, candidate)
        yield setting(run, candidate) + model + before + _guarded(lines[stage]) + _raised_ending(self.check)

    def confirms(self, scope: dict[str, Any]) -> bool:
        got = f"{self.finding.exception}: {self.finding.message}"
        return str(scope.get("got")).translate(FIGURES) == got.translate(FIGURES)


def _guarded(lines: str) -> str:
    inner = "".join(f"    {line}\n" for line in lines.splitlines())
    return (
        f'expected = got = "no exception"\ntry:\n{inner}'
        'except Exception as error:\n    got = f"{type(error).__name__}: {error}".splitlines()[0]\n'
    )


def _raised_ending(check: str) -> str:
    return ending(check, "got != expected", "an exception")


def float_model_accepts(run: Run, candidate: Candidate) -> bool:
    """Whether the float model of a candidate accepts its inputs and has outputs."""
    try:
        executed(f"{setting(run, candidate)}{candidate.model_lines}model.eval()\nmodel({arguments(candidate)})\n")
    except Exception:  # a float model refuses sizes with exceptions of many types; no quantized kernel runs here
        return False
    return True


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
            f"{prepared_lines(self.run, candidate)}{lower_line()}"
            'print("expected: a result, or an exception")\n'
            'print("DEVIATES crashes: the process dies here", flush=True)\n'
            f"{PERTURB if candidate.perturbed else ''}{perturbed(candidate, 0x55)}{call}"
            f"{(perturbed(candidate, 0xAA) + call) if candidate.perturbed else ''}"
        )
