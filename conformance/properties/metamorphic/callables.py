"""Implementations of a run (its float model, or the program of an engine) that relations call with other inputs."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import torch
from torch import Tensor
from torch.fx import GraphModule

from conformance.cases.runs import Run
from conformance.cases.variants import variants
from conformance.checks import lowering
from conformance.checks.comparison import differ, float32_error
from conformance.checks.recorder import StageFailed, stage
from conformance.checks.tolerances import rounds
from conformance.engines.protocol import Program
from conformance.engines.registry import engine
from conformance.host.poison import fresh_memory_holds
from conformance.models import build, data, fx
from conformance.models.build import Subject, tensors
from conformance.models.templates import Template
from conformance.models.trace import Execution, execute
from conformance.results.findings import Finding
from conformance.results.findings.relations import RelationOutputs, RelationShape, RelationValues, RelationVaries
from conformance.stopwatch import Stopwatch

from .transforms import Call

TIE = 2.0**-6
"""Distance from the middle between two codes, in steps, that counts as a tie. An engine that rounds the bias to the grid of
its accumulator, or computes a mean or a norm in float32, gets slightly different values there."""

CHECK = "stable"
"""The check that relations belong to."""

Comparison = Callable[[str, Sequence[Tensor], Sequence[Tensor]], Finding | None]
"""The finding that outputs differ, or None: takes the name of the relation, the expected outputs and the outputs."""


@dataclass(frozen=True)
class Implementation:
    """A subject that can be called. `build` makes the same implementation of another subject."""

    subject: Subject
    build: Callable[[Subject], Call]
    compare: Comparison

    @cached_property
    def call(self) -> Call:
        return self.build(self.subject)

    @cached_property
    def outputs(self) -> list[Tensor]:
        """The outputs for the subject's own inputs."""
        return self.call(self.subject.fresh_inputs())


@dataclass(frozen=True)
class EngineImplementation(Implementation):
    """The program that an engine compiles of a run's model.

    `lower` compiles programs of calibrated models for example inputs, `program` is the one of `prepared`, the calibrated
    model, and `blank` is the prepared model before calibration.
    """

    lower: Callable[[GraphModule, Sequence[Tensor]], Program]
    blank: GraphModule
    prepared: GraphModule
    program: Program


def as_call(model: Program) -> Call:
    """A model or a program as a Call; quantized outputs are dequantized."""

    def call(inputs: Sequence[Tensor]) -> list[Tensor]:
        with torch.no_grad():
            return [y.dequantize() if y.is_quantized else y for y in tensors(model(*inputs))]

    return call


def compared(
    relation: str, expected: Sequence[Tensor], got: Sequence[Tensor], allowed: Callable[[int], Tensor | None]
) -> Finding | None:
    """The first difference between two lists of outputs.

    `allowed` returns, by the number of the output, the difference that is allowed for each element, or None for none.
    """
    if len(expected) != len(got):
        return RelationOutputs(CHECK, relation, len(got), len(expected))
    for number, (first, again) in enumerate(zip(expected, got, strict=True)):
        if first.shape != again.shape:
            return RelationShape(CHECK, relation, number, tuple(again.shape), tuple(first.shape))
        changed = differ(first, again)
        if bool(changed.any()) and (most := allowed(number)) is not None and most.shape == first.shape:
            changed &= ~((first - again).abs() <= most)
        if bool(changed.any()):
            index = tuple(changed.nonzero()[0].tolist())
            values = float(again[index].item()), float(first[index].item())
            return RelationValues(CHECK, relation, number, int(changed.sum()), first.numel(), index, *values)
    return None


def close(relation: str, expected: Sequence[Tensor], got: Sequence[Tensor]) -> Finding | None:
    """Compare the outputs of float models, whose roundings differ."""
    same = all(a.shape == b.shape and torch.allclose(a, b) for a, b in zip(expected, got, strict=True))
    return None if same else RelationVaries(CHECK, relation)


def allowed_difference(subject: Subject, prepared: GraphModule, number: int) -> Tensor | None:
    """The difference that is allowed for each element of an output: a step where the reference model quantizes a tie, or the
    error of float32 in a float output of functions that round. None without either."""
    reference = execute(fx.reference(prepared, subject.run.backend.config), subject.fresh_inputs())
    codes, values = reference.outputs[number].quantized, reference.outputs[number].values
    if codes is None:
        return torch.full_like(values, float32_error(values)) if rounds(subject.run.claim) else None
    if codes.qscheme() not in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return None
    position = next(value for value, result in reference.quantized if result is codes).double() / codes.q_scale()
    return ((position - position.floor() - 0.5).abs() <= TIE) * (1.001 * codes.q_scale())


@lru_cache(1)
def small(run: Run) -> Subject:
    """The subject of a run with the default shapes of its claim."""
    return build.subject(replace(run, variant=variants(run.claim)[0]))


def subject(run: Run) -> Subject:
    """The float model and the data of a run; every item of the data contains both ends of the range."""
    plain = build.subject(run)
    return replace(plain, calibration=data.with_ends(plain.calibration), inputs=data.with_ends(plain.inputs))


def implementation(watch: Stopwatch, run: Run) -> tuple[EngineImplementation, Execution]:
    """Prepare, calibrate, lower and execute a run. Raises StageFailed."""
    config = run.backend.config
    with stage(watch, "matched", "float"):
        build.float_outputs(small(run))
    with stage(watch, "observed", "prepare"):
        own = subject(run)
        blank = fx.prepare(own, config)
    template = Template(own.model, blank)
    with stage(watch, "observed", "calibrate"):
        prepared = copy.deepcopy(blank)
        fx.calibrate(prepared, own)
    backend_engine = engine(run.engine)

    def lower(calibrated: GraphModule, inputs: Sequence[Tensor]) -> Program:
        return backend_engine.compile(backend_engine.convert(calibrated, config), inputs)

    with stage(watch, "lowered", "lower"):
        program = lower(prepared, own.fresh_inputs())
    with stage(watch, "lowered", "execute"), fresh_memory_holds(0x55):
        execution = backend_engine.execute(program, own.fresh_inputs())
    if findings := tuple(lowering.findings_of(run, execution)):
        raise StageFailed(findings)

    def call_of(subject: Subject) -> Call:
        if subject is own:
            return as_call(program)
        other_prepared = template.of(subject.model) or fx.prepare(subject, config)
        fx.calibrate(other_prepared, subject)
        return as_call(lower(other_prepared, subject.fresh_inputs()))

    def compare(relation: str, expected: Sequence[Tensor], got: Sequence[Tensor]) -> Finding | None:
        return compared(relation, expected, got, partial(allowed_difference, own, prepared))

    return EngineImplementation(own, call_of, compare, lower, blank, prepared, program), execution
