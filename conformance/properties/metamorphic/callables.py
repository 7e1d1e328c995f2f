"""A run as something that can be called with other inputs, from its float model to the engine's, for the laws to try."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import torch
from torch import Tensor
from torch.fx import GraphModule

from conformance.cases.runs import Run
from conformance.cases.sources import variants
from conformance.checks import lowering
from conformance.checks.comparison import differ
from conformance.checks.stages import guarded
from conformance.engines.protocol import Program
from conformance.engines.registry import engine
from conformance.engines.trace import Execution, execute
from conformance.errors import brief
from conformance.host.poison import fresh_memory_holds
from conformance.models import build, data, fx
from conformance.models.build import Subject, tensors
from conformance.results.findings import text_of
from conformance.stopwatch import Stopwatch

from .transforms import Call

TIE = 2.0**-6
"""How close to the middle between two codes counts as a tie, in steps: an engine that rounds the bias to its accumulator's
grid, or takes a mean or a norm in float32, sees the value a little to the side."""


@dataclass(frozen=True)
class Form:
    """A subject as something that can be called: its float model, or what an engine makes of it.

    `make` makes the same of another subject, `compare` says how two lists of outputs differ, or nothing.
    """

    given: Subject
    make: Callable[[Subject], Call]
    compare: Callable[[Sequence[Tensor], Sequence[Tensor]], str]

    @cached_property
    def call(self) -> Call:
        return self.make(self.given)

    @cached_property
    def outputs(self) -> list[Tensor]:
        return self.call(self.given.fresh_inputs())


@dataclass(frozen=True)
class Trial(Form):
    """What an engine makes of a run; `lower` makes programs of calibrated models, for inputs like those given, and `lowered`
    is one. `blank` is the prepared model before calibration."""

    lower: Callable[[GraphModule, Sequence[Tensor]], Program]
    blank: GraphModule
    prepared: GraphModule
    lowered: Program


def caller(model: Program) -> Call:
    """A model or a program as a Call; quantized outputs are dequantized."""

    def call(inputs: Sequence[Tensor]) -> list[Tensor]:
        with torch.no_grad():
            return [y.dequantize() if y.is_quantized else y for y in tensors(model(*inputs))]

    return call


def compared(expected: Sequence[Tensor], got: Sequence[Tensor], at_ties: Callable[[int], Tensor | None]) -> str:
    """How outputs differ; `at_ties` gives of an output, by number, the step where elements lie at a tie, else 0."""
    if len(expected) != len(got):
        return f"changes the number of outputs from {len(expected)} to {len(got)}"
    for number, (first, again) in enumerate(zip(expected, got, strict=True)):
        of = f" of output {number}" if number else ""
        if first.shape != again.shape:
            return f"changes the shape{of} from {tuple(first.shape)} to {tuple(again.shape)}"
        changed = differ(first, again)
        if bool(changed.any()) and (steps := at_ties(number)) is not None and steps.shape == first.shape:
            changed &= (first - again).abs() > 1.001 * steps
        if bool(changed.any()):
            where = tuple(changed.nonzero()[0].tolist())
            values = f"{again[where].item():g}, not {first[where].item():g}"
            return f"changes {int(changed.sum())} of {first.numel()} values{of}, first at {where}: {values}"
    return ""


def ties(given: Subject, prepared: GraphModule, number: int) -> Tensor | None:
    """The step of an output's grid where the reference model quantizes a tie, else 0; None without a grid."""
    reference = execute(fx.reference(prepared, given.run.backend.config), given.fresh_inputs())
    codes = reference.outputs[number].quantized
    if codes is None or codes.qscheme() not in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return None
    value = next(value for value, made in reference.quantized if made is codes).double() / codes.q_scale()
    return ((value - value.floor() - 0.5).abs() <= TIE) * codes.q_scale()


@lru_cache(1)
def small(run: Run) -> Subject:
    """The subject of a run on the claim's own default shapes."""
    return build.subject(replace(run, variant=variants(run.claim)[0]))


@dataclass
class Broken(Exception):
    """A stage before the laws that raises: the check that says so, and how."""

    check: str
    detail: str


@contextmanager
def stage(watch: Stopwatch, check: str, name: str) -> Iterator[None]:
    def broken(error: BaseException) -> None:
        cause = error.args[0] if isinstance(error, build.CannotBeBuilt) else error
        raise Broken(check, f"{name} raises {brief(cause)}") from error

    with guarded(watch, broken):
        yield


def subject(run: Run) -> Subject:
    """The float model and the data of a run: every item has both ends of the range."""
    given = build.subject(run)
    return replace(given, calibration=data.with_ends(given.calibration), inputs=data.with_ends(given.inputs))


def trial(watch: Stopwatch, run: Run) -> tuple[Trial, Execution]:
    """Take a run to its first execution. Raises Broken."""
    config = run.backend.config
    with stage(watch, "matched", "the pattern cannot occur: the float model"):
        build.float_outputs(small(run))
    with stage(watch, "observed", "prepare"):
        given = subject(run)
        prepared = fx.prepare(given, config)
    blank = copy.deepcopy(prepared)
    with stage(watch, "observed", "the observed model"):
        fx.calibrate(prepared, given)
    used = engine(run.engine)

    def lower(calibrated: GraphModule, inputs: Sequence[Tensor]) -> Program:
        return used.compile(used.convert(calibrated, config), inputs)

    with stage(watch, "lowered", "lower"):
        lowered = lower(prepared, given.fresh_inputs())
    with stage(watch, "lowered", "execute"), fresh_memory_holds(0x55):
        execution = used.execute(lowered, given.fresh_inputs())
    if findings := tuple(lowering.findings_of(run, execution)):
        raise Broken("lowered", text_of(findings))

    def make(other: Subject) -> Call:
        if other is given:
            return caller(lowered)
        fresh = fx.prepare(other, config)
        fx.calibrate(fresh, other)
        return caller(lower(fresh, other.fresh_inputs()))

    def compare(expected: Sequence[Tensor], got: Sequence[Tensor]) -> str:
        return compared(expected, got, partial(ties, given, prepared))

    return Trial(given, make, compare, lower, blank, prepared, lowered), execution
