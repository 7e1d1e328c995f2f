"""The row of a sweep: each result is within rounding of exact arithmetic, the same at every place, and in order."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy
import torch
from torch import Tensor

from conformance.cases.runs import Run
from conformance.checks import lowering
from conformance.checks.comparison import SHOWN, Comparison
from conformance.checks.evidence import row_of
from conformance.checks.recorder import StageFailed, stage
from conformance.configs.engines import ENGINE_TABLE
from conformance.engines.registry import engine
from conformance.host.poison import fresh_memory_holds
from conformance.models import apis, build, fx
from conformance.models.trace import Execution
from conformance.oracle import Qparams
from conformance.results.findings import Finding
from conformance.results.findings.codes import (
    NEAR_TIE,
    Code,
    SweptCodes,
    SweptElement,
    SweptOrder,
    SweptPlaces,
    SweptQparams,
    SweptRaises,
    SweptScale,
    SweptTies,
)
from conformance.results.findings.relations import RelationVaries
from conformance.results.findings.values import OutputShape
from conformance.results.rows import Row
from conformance.stopwatch import Stopwatch

from ..metamorphic.relations import SECOND_CALL
from .settings import result_codes
from .sweeps import Executed, Model, Plan, Relowered, Swept, executed, plan, rescaled


@dataclass(frozen=True, eq=False)
class Judged:
    """An executed sweep compared with exact arithmetic."""

    swept: Swept

    @property
    def plan(self) -> Plan:
        return self.swept.plan

    @cached_property
    def off(self) -> Tensor:
        """The distance of each code from those that exact arithmetic allows (int64, turns first)."""
        got, expected = self.swept.got, self.swept.expected
        return torch.maximum(expected.low - got, got - expected.high).clamp(min=0)

    @cached_property
    def keys(self) -> Tensor | None:
        """For each element of the output a number of the codes and the channel that it is computed from (int64, turns
        first). None if it is computed from several codes, for a layer with a second operand, where few keys occur twice, and
        for float results, whose last bits may depend on the place."""
        plan, shape = self.plan, self.swept.got.shape
        if plan.in_float or not plan.pointwise or (len(plan.operands) > 1 and not plan.pairs):
            return None
        key = plan.operands[0].numbers
        if plan.channels is not None:
            index = torch.arange(shape[plan.channels])
            key = index.reshape([-1 if dim == plan.channels else 1 for dim in range(len(shape))]) * plan.codes + key
        for operand in plan.operands[1:]:
            key = key * plan.codes + operand.numbers
        return key.expand(shape).flatten(1)

    def comparison(self) -> Comparison:
        """The counts of a row."""
        got, expected, off = self.swept.got, self.swept.expected, self.off
        tied = expected.tied & (off == 0)
        odd = (got[tied] % 2).sum()  # the golden of a tie is the even code
        return Comparison(got.numel(), int((off > 0).sum()), int(odd), 0, int(off.max()))

    def codes_differ(self) -> Iterator[Finding]:
        off = self.off
        if not bool(off.any()):
            return
        wrong = off > 0
        worst = off.flatten().topk(min(SHOWN, int(wrong.sum()))).indices.sort().values.tolist()
        turns = int(wrong.flatten(1).any(1).sum())
        elements = tuple(map(self.element, worst))
        position = self.swept.expected.position[wrong]
        beside = (position - position.floor() - 0.5).abs() <= NEAR_TIE
        kind = SweptTies if bool((beside & (off[wrong] == 1)).all()) else SweptCodes
        yield kind("numerics", int(wrong.sum()), off.numel(), int(off.max()), turns, len(off), elements)

    def qparams_differ(self) -> Iterator[Finding]:
        given, got = self.plan.qparams, self.swept.qparams
        if same_qparams(given, got) or not self.plan.declares_qparams:
            return
        differ = (given.scale != got.scale) | (given.zero_point != got.zero_point)
        turn = int(differ.nonzero()[0])
        operands = self.plan.operand_qparams(turn)
        outputs = (self.plan.output_qparams(turn, which) for which in (got, given))
        yield SweptQparams("numerics", turn, int(differ.sum()), len(differ), operands, *outputs)

    def raises(self) -> Iterator[Finding]:
        raised = self.swept.raised
        for failure in dict.fromkeys(raised.values()):
            turns = [turn for turn, other in raised.items() if other == failure]
            operands, output = (
                self.plan.operand_qparams(turns[0]),
                self.plan.output_qparams(turns[0], self.plan.qparams),
            )
            counts = turns[0], len(turns), self.plan.turns
            yield SweptRaises("lowered", *counts, operands, output, failure.exception, failure.message)

    @cached_property
    def uncertain(self) -> Tensor:
        """The turns in which some code is wrong or a tie. In the others equal codes give equal results, and in order."""
        return ((self.off > 0) | self.swept.expected.tied).flatten(1).any(1).nonzero().flatten()

    def places_differ(self) -> Iterator[Finding]:
        """The first pair of elements of one turn with equal keys and different codes."""
        if self.keys is None or not len(self.uncertain):
            return
        keys, got = self.keys[self.uncertain], self.swept.got.flatten(1)[self.uncertain]
        last = torch.zeros(len(got), int(self.keys.max()) + 1, dtype=torch.int64).scatter(1, keys, got)
        changed = last.gather(1, keys) != got
        if not bool(changed.any()):
            return
        number, place = changed.nonzero()[0].tolist()
        others = (keys[number] == keys[number, place]) & (got[number] != got[number, place])
        first = int(self.uncertain[number]) * got.shape[1]
        ends = (self.element(first + at) for at in (place, int(others.nonzero()[0])))
        yield SweptPlaces("stable", int(changed.sum()), self.swept.got.numel(), *ends)

    def order_differs(self) -> Iterator[Finding]:
        """Results fall from one code to the next where exact arithmetic does not, or rise."""
        if self.keys is None or not len(self.uncertain):
            return
        keys, got = self.keys[self.uncertain], self.swept.got.flatten(1)[self.uncertain]
        exact = self.plan.results.flatten(1)[self.uncertain]
        places = torch.full((len(keys), int(self.keys.max()) + 1), -1)
        places.scatter_(1, keys, torch.arange(keys.shape[1]).expand_as(keys))
        if bool((places < 0).any()):
            return  # only some combinations of operands occur
        grid = places.reshape(len(places), -1, self.plan.codes)
        for table in (grid, grid.mT) if self.plan.pairs else (grid,):
            flat = table.flatten(1)
            steps, rises = (values.gather(1, flat).reshape(table.shape).diff() for values in (got, exact))
            wrong = ((steps < 0) & (rises >= 0)) | ((steps > 0) & (rises <= 0))
            if bool(wrong.any()):
                number, row, code = wrong.nonzero()[0].tolist()
                first = int(self.uncertain[number]) * keys.shape[1]
                ends = (self.element(first + int(table[number, row, at])) for at in (code, code + 1))
                yield SweptOrder("numerics", int(wrong.sum()), *ends)
                return

    def element(self, flat: int) -> SweptElement:
        """The element at a place of all turns."""
        shape = self.swept.got.shape
        turn, *index = map(int, numpy.unravel_index(flat, tuple(shape)))  # torch's function would import sympy
        at = (turn, *index)
        codes: tuple[int, ...] = ()
        if self.plan.pointwise:
            codes = tuple(int(operand.codes.expand(shape)[at]) for operand in self.plan.operands)
        expected = self.swept.expected
        got = Code(self.plan.output_qparams(turn, self.swept.qparams), int(self.swept.got[at]))
        ends = int(expected.low[at]), int(expected.high[at])
        operands = self.plan.operand_qparams(turn)
        return SweptElement(turn, tuple(index), operands, codes, got, *ends, round(float(expected.position[at]), 9))

    def findings(self) -> Iterator[Finding]:
        yield from self.raises()
        yield from self.qparams_differ()
        yield from self.codes_differ()
        yield from self.order_differs()
        yield from self.places_differ()


def same_qparams(one: Qparams, other: Qparams) -> bool:
    return torch.equal(one.scale, other.scale) and torch.equal(one.zero_point, other.zero_point)


def scale_differs(model: Model, plan: Plan) -> Iterator[Finding]:
    """Whether the call before decides what the input of the first turn gives with the output's scale of the second: one with
    another scale of the input, or one that differs in the output's scale only."""
    other, results = rescaled(plan), []
    for before in ((1,), (1, 0)):
        for turn in before:
            model.turn(plan, turn)
        results.append(executed(model, other))
    first, second = results
    if first.raised or second.raised:
        return  # the sweep shows it
    differ = first.got != second.got
    if not same_qparams(first.qparams, second.qparams):
        differ |= True
    if bool(differ.any()):
        judged = Judged(second)
        element = judged.element(int((differ * (1 + judged.off)).flatten().argmax()))
        yield SweptScale("stable", int(differ.sum()), differ.numel(), plan.output_qparams(0, plan.qparams), element)


def swept(watch: Stopwatch, run: Run) -> tuple[Execution, Judged, tuple[Finding, ...]]:
    """Prepare, calibrate and lower a run, execute the sweep, and repeat its first turn with another scale of the output.

    Returns the findings about that repetition, and those about the kernels of a program that quantized ones are among. Raises
    StageFailed.
    """
    config, used = run.backend.config, engine(run.engine)
    with stage(watch, _reporting(run, "matched"), "float"):
        subject = build.subject(run)
        build.float_outputs(subject)
    with stage(watch, _reporting(run, "observed"), "prepare"):
        prepared = apis.of(subject.run.backend).prepare(subject)
    with stage(watch, _reporting(run, "observed"), "calibrate"):
        apis.of(subject.run.backend).calibrate(prepared, subject)
    with stage(watch, "lowered", "lower"):
        lowered = used.convert(prepared, config)
        program = used.compile(lowered, subject.fresh_inputs())
    with stage(watch, "lowered", "execute"):
        execution = used.execute(program, subject.fresh_inputs())
    native, findings = ENGINE_TABLE[run.engine].native, tuple(lowering.findings_of(run, execution))
    if findings and (native or not execution.names()):
        raise StageFailed(findings)
    model: Model = Executed(lowered) if native else Relowered(used, prepared, config)
    sweep = plan(run, subject, model.own_qparams, in_float=model.in_float)
    shape, due = tuple(execution.outputs[0].values.shape), tuple(sweep.results.shape[1:])
    if shape != due:
        raise StageFailed((OutputShape("numerics", 0, shape, due),))
    with watch(), fresh_memory_holds(0x55):
        result = executed(model, sweep)
    if {0, 1} & result.raised.keys():
        return execution, Judged(result), findings
    with watch(), fresh_memory_holds(0xAA), torch.no_grad():
        again = model.turn(sweep, 0)
    if not torch.equal(result_codes(again), result.got[0]):
        raise StageFailed((RelationVaries("stable", SECOND_CALL),))
    if model.keeps and model.own_qparams:
        with watch(), torch.no_grad():
            findings += tuple(scale_differs(model, sweep))
    return execution, Judged(result), findings


def _reporting(run: Run, check: str) -> str:
    """The check that reports what a stage raises: `check`, or that of lowering where the run does not go through it."""
    return check if check in run.checks else "lowered"


def row(watch: Stopwatch, run: Run) -> Row:
    """Sweep a run. Checks after a failed stage are skipped."""
    start = time.perf_counter()
    execution: Execution | None = None
    counts: Comparison | None = None
    findings: tuple[Finding, ...]
    results = dict.fromkeys(run.checks, "pass")
    try:
        with engine(run.engine).scope(), fx.quiet():
            execution, judged, others = swept(watch, run)
        findings, counts = (*judged.findings(), *others), judged.comparison()
    except StageFailed as failed:
        findings = failed.findings
        reached = min(map(run.checks.index, (findings[0].check, "numerics")))  # both judge all turns
        results |= dict.fromkeys(run.checks[reached:], "skip")
    results |= {finding.check: "fail" for finding in findings}
    return row_of(
        run, start, results, findings, execution=execution, comparison=counts if counts and counts.total else None
    )
